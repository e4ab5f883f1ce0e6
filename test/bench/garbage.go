package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	perDependent     = "requests per dependent"
	rejectedRequests = "requests in 60 s"
	rejectedLines    = "log lines in 60 s"
	rejectedGone     = "webhook removed to all deleted"
	jobsGone         = "200 Jobs gone"

	dependents     = 2_000
	customGroup    = "bench.example.com"
	collectorAgent = "generic-garbage-collector"
	orphanTypes    = 200
	orphanedJobs   = 200
	jobsPerPod     = 10 // a pod exists for every tenth Job
	memoryTypes    = 10
	manyCount      = 50_000
	mapPayload     = 4_000 // bytes
)

func (r *rig) createOwner(ctx context.Context) (owner *corev1.ConfigMap, ref metav1.OwnerReference) {
	owner = &corev1.ConfigMap{ObjectMeta: objectMeta("owner")}
	r.create(ctx, owner)
	return owner, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}
}

func (r *rig) createDependents(ctx context.Context) (owner *corev1.ConfigMap) {
	owner, ref := r.createOwner(ctx)
	must.ForEach(ctx, writers, dependents, func(ctx context.Context, i int) {
		r.create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta(fmt.Sprint("dependent-", i), ref)})
	})
	return owner
}

// measureGarbage deletes an owner of ConfigMaps and of pods on no node.
func measureGarbage(ctx context.Context, r *rig, c contestant) []reading {
	m := r.launchWorking(ctx, c)
	owner, ref := r.createOwner(ctx)
	must.ForEach(ctx, writers, dependents, func(ctx context.Context, i int) {
		name := fmt.Sprint("dependent-", i)
		if i%2 == 0 {
			r.create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta(name, ref)})
		} else {
			r.create(ctx, controlplane.Pod(benchNamespace, name, nil, func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{ref} }))
		}
	})
	must.Pause(ctx, settleTime)
	before := len(r.requests(byLoop(collectorAgent), controlplane.ByNamespace(benchNamespace)))
	maps, pods := r.watchFromNow(ctx, &corev1.ConfigMapList{}, benchNamespace), r.watchFromNow(ctx, &corev1.PodList{}, benchNamespace)
	all := r.measureEffort(m, func() time.Time {
		must.Succeed(r.client.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		end, other := awaitEvents(ctx, maps, watch.Deleted, dependents/2+1), awaitEvents(ctx, pods, watch.Deleted, dependents/2)
		if other.After(end) {
			return other
		}
		return end
	})
	must.Pause(ctx, settleTime)
	requests := len(r.requests(byLoop(collectorAgent), controlplane.ByNamespace(benchNamespace))) - before
	return append(all.readings("2,000 dependents gone"), reading{perDependent, "", float64(requests) / dependents})
}

// rejectWrites registers a webhook with an untrusted certificate for an operation of managerUser. The address is the
// API server's: failed dials of a webhook without a listener would count as dials of the manager. Dry runs of creates
// of a ConfigMap show that the webhook is in effect.
func (r *rig) rejectWrites(ctx context.Context, operation admissionv1.OperationType, group string, resources ...string) *admissionv1.ValidatingWebhookConfiguration {
	identity := r.cluster.ConfigFor(managerUser, "system:masters")
	rule := func(operation admissionv1.OperationType, group string, resources ...string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
		}
	}
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "broken." + customGroup, ClientConfig: admissionv1.WebhookClientConfig{URL: &identity.Host},
			Rules:           []admissionv1.RuleWithOperations{rule(operation, group, resources...), rule(admissionv1.Create, "", "configmaps")},
			MatchConditions: []admissionv1.MatchCondition{{Name: "manager", Expression: fmt.Sprintf("request.userInfo.username == %q", managerUser)}},
			SideEffects:     new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	r.create(ctx, hook)
	asManager := must.Get(controlplane.NewClient(identity))
	must.Poll(ctx, pollInterval, func() bool {
		err := asManager.Create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta("probe")}, client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			must.Succeed(fmt.Errorf("probe the webhook: %w", err))
		}
		return err != nil
	})
	return hook
}

func measureBrokenWebhook(ctx context.Context, r *rig, c contestant) []reading {
	m := r.launchWorking(ctx, c)
	owner := r.createDependents(ctx)
	hook := r.rejectWrites(ctx, admissionv1.Delete, "", "configmaps")
	must.Pause(ctx, settleTime)
	before, lines := len(r.requests()), m.logLines()
	must.Succeed(r.client.Delete(ctx, owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	must.Pause(ctx, time.Minute)
	requests, lines := len(r.requests())-before, m.logLines()-lines
	maps, begin := r.watchFromNow(ctx, &corev1.ConfigMapList{}, benchNamespace), time.Now()
	must.Succeed(r.client.Delete(ctx, hook))
	end := awaitEvents(ctx, maps, watch.Deleted, dependents)
	return []reading{
		{rejectedRequests, "", float64(requests)}, {rejectedLines, "", float64(lines)}, {rejectedGone, "s", end.Sub(begin).Seconds()},
	}
}

func measureOrphans(ctx context.Context, r *rig, c contestant) []reading {
	m := r.launchWorking(ctx, c)
	made := make([]*batchv1.Job, orphanedJobs)
	must.ForEach(ctx, writers, orphanedJobs, func(ctx context.Context, i int) {
		namespace := fmt.Sprint("jobs-", i)
		r.createNamespace(ctx, namespace)
		made[i] = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job"}}
		made[i].Spec.Template.Spec = controlplane.Pod(namespace, "", nil).Spec
		made[i].Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(ctx, made[i])
		if i%jobsPerPod == 0 {
			r.create(ctx, controlplane.Pod(namespace, "orphan", nil, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(made[i], batchv1.SchemeGroupVersion.WithKind("Job"))}
			}))
		}
	})
	must.Pause(ctx, settleTime)
	jobs := r.watchFromNow(ctx, &batchv1.JobList{}, "")
	all := r.measureEffort(m, func() time.Time {
		must.ForEach(ctx, writers, orphanedJobs, func(ctx context.Context, i int) {
			must.Succeed(r.client.Delete(ctx, made[i], client.PropagationPolicy(metav1.DeletePropagationOrphan)))
		})
		return awaitEvents(ctx, jobs, watch.Deleted, orphanedJobs)
	})
	var pods corev1.PodList
	must.Succeed(r.client.List(ctx, &pods, client.MatchingFields{"metadata.name": "orphan"}))
	orphans := 0
	for _, pod := range pods.Items {
		if len(pod.OwnerReferences) == 0 {
			orphans++
		}
	}
	if orphans != orphanedJobs/jobsPerPod {
		must.Succeed(fmt.Errorf("%d pods are orphans, want %d", orphans, orphanedJobs/jobsPerPod))
	}
	return all.readings(jobsGone)
}

// defineType defines the custom type plural and waits until the API server serves the type.
func (r *rig) defineType(ctx context.Context, plural string) {
	r.create(ctx, controlplane.CustomType(customGroup, plural, "Kind"+plural))
	must.Poll(ctx, pollInterval, func() bool {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(customObject(plural, metav1.ObjectMeta{}).GroupVersionKind())
		err := r.client.List(ctx, &list, client.Limit(1))
		if err != nil && !meta.IsNoMatchError(err) && client.IgnoreNotFound(err) != nil {
			must.Succeed(err)
		}
		return err == nil
	})
}

func customObject(plural string, meta metav1.ObjectMeta) *unstructured.Unstructured {
	content := must.Get(runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: customGroup + "/v1", Kind: "Kind" + plural}, ObjectMeta: meta,
	}))
	return &unstructured.Unstructured{Object: content}
}

func createTypes(n int) func(context.Context, *rig) {
	return func(ctx context.Context, r *rig) {
		must.ForEach(ctx, writers, n, func(ctx context.Context, i int) { r.defineType(ctx, fmt.Sprint("things", i)) })
	}
}

// createManyObjects creates 50,000 objects of 13 types, seven of ten with an owner.
func createManyObjects(ctx context.Context, r *rig) {
	createTypes(memoryTypes)(ctx, r)
	_, ref := r.createOwner(ctx)
	must.ForEach(ctx, writers, manyCount, func(ctx context.Context, i int) {
		meta := objectMeta(fmt.Sprint("object-", i))
		if i%10 < 7 {
			meta.OwnerReferences = []metav1.OwnerReference{ref}
		}
		switch 5 * i / manyCount {
		case 0:
			r.create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: controlplane.Pod("", "", nil).Spec})
		case 1:
			r.create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config": strings.Repeat("x", mapPayload)}})
		case 2:
			r.create(ctx, &corev1.Secret{ObjectMeta: meta})
		default:
			r.create(ctx, customObject(fmt.Sprint("things", i%memoryTypes), meta))
		}
	})
}
