package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	refusedMaps  = 2_000
	refusedFor   = time.Minute
	brokenName   = "broken"
	orphanedJobs = 200
	orphanTypes  = 200
	// A pod exists for every tenth Job.
	jobsPerPod = 10
)

var (
	refusedRequests = metric{"requests in 60 s", ""}
	refusedLines    = metric{"log lines in 60 s", ""}
	refusedGone     = metric{"webhook removed to all deleted", "s"}

	jobsGone = metric{"200 Jobs gone", "s"}
	jobsCPU  = metric{"manager CPU", "s"}
	jobsAPI  = metric{"API server CPU", "s"}
)

// breakWebhook registers a webhook with an untrusted certificate for an operation of managerUser. The address is the
// API server's: failed dials of a webhook without a listener would count as dials of the manager. Dry runs of creates
// of a ConfigMap show that the webhook is in effect.
func (r *rig) breakWebhook(ctx context.Context, operation admissionv1.OperationType, group string, resources ...string) error {
	rule := func(operation admissionv1.OperationType, group string, resources ...string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
		}
	}
	_, err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: brokenName},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    brokenName + "." + customGroup,
			ClientConfig:            admissionv1.WebhookClientConfig{URL: ptr.To(r.cluster.ConfigFor(managerUser, "system:masters").Host)},
			Rules:                   []admissionv1.RuleWithOperations{rule(operation, group, resources...), rule(admissionv1.Create, "", "configmaps")},
			MatchConditions:         []admissionv1.MatchCondition{{Name: "manager", Expression: fmt.Sprintf("request.userInfo.username == %q", managerUser)}},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create webhook: %w", err)
	}
	manager, err := kubernetes.NewForConfig(r.cluster.ConfigFor(managerUser, "system:masters"))
	if err != nil {
		return fmt.Errorf("build a client: %w", err)
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	return poll(ctx, statusPeriod, func() (bool, error) {
		_, err := manager.CoreV1().ConfigMaps(benchNamespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			return false, fmt.Errorf("probe the webhook: %w", err)
		}
		return err != nil, nil
	})
}

func (r *rig) removeWebhook(ctx context.Context) error {
	if err := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, brokenName, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove webhook: %w", err)
	}
	return nil
}

func measureBrokenWebhook(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		r.dependents(ctx, owner, "dependent", refusedMaps), r.breakWebhook(ctx, admissionv1.Delete, "", "configmaps"), pause(ctx, settled),
	); err != nil {
		return nil, err
	}
	before, err := r.cluster.ReadAuditLog(requestsOf(managerUser))
	if err != nil {
		return nil, err
	}
	lines := strings.Count(m.Output(), "\n")
	if err := errors.Join(r.deleteMap(ctx, owner.Name, metav1.DeletePropagationBackground), pause(ctx, refusedFor)); err != nil {
		return nil, err
	}
	after, err := r.cluster.ReadAuditLog(requestsOf(managerUser))
	if err != nil {
		return nil, err
	}
	lines = strings.Count(m.Output(), "\n") - lines
	begin := time.Now()
	end, err := r.vanished(ctx, refusedMaps, 0, func() error { return r.removeWebhook(ctx) })
	return []reading{
		{refusedRequests, float64(len(after) - len(before))}, {refusedLines, float64(lines)}, {refusedGone, end.Sub(begin).Seconds()},
	}, err
}

func measureOrphans(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	names, err := r.createNamespaces(ctx, "jobs", orphanedJobs, r.createJob)
	if err != nil {
		return nil, err
	}
	pods := 0
	for i := 0; i < len(names); i += jobsPerPod {
		job, err := r.client.BatchV1().Jobs(names[i]).Get(ctx, jobName, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get Job: %w", err)
		}
		pod := controlplane.Pod(names[i], "orphan", nil)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		if _, err := r.client.CoreV1().Pods(names[i]).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create pod: %w", err)
		}
		pods++
	}
	if err := pause(ctx, settled); err != nil {
		return nil, err
	}
	all, err := r.effort(ctx, m, "orphans", func() (time.Time, error) { return r.deleteJobs(ctx, names) })
	if err != nil {
		return nil, err
	}
	list, err := r.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=orphan"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range list.Items {
		if len(pod.OwnerReferences) == 0 {
			pods--
		}
	}
	if pods != 0 {
		return nil, fmt.Errorf("%d pods are no orphans", pods)
	}
	return []reading{{jobsGone, all.wall}, {jobsCPU, all.manager}, {jobsAPI, all.apiServer}}, nil
}

const jobName = "job"

func (r *rig) createJob(ctx context.Context, namespace string) error {
	template := corev1.PodTemplateSpec{Spec: controlplane.Pod(namespace, jobName, nil).Spec}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName}, Spec: batchv1.JobSpec{Template: template}}
	if _, err := r.client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Job: %w", err)
	}
	return nil
}

// deleteJobs returns when the last Job was gone.
func (r *rig) deleteJobs(ctx context.Context, namespaces []string) (time.Time, error) {
	jobs, err := watchFromNow(ctx, r.client.BatchV1().Jobs(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return time.Time{}, err
	}
	defer jobs.Stop()
	if err := inParallel(ctx, writers, len(namespaces), func(ctx context.Context, i int) error {
		if err := r.client.BatchV1().Jobs(namespaces[i]).Delete(ctx, jobName, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete Job: %w", err)
		}
		return nil
	}); err != nil {
		return time.Time{}, err
	}
	return follow(ctx, jobs, nth(len(namespaces), watch.Deleted))
}
