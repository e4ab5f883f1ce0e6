package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	rolloutDeployments = 20
	rolloutPods        = 50
	// idleDeployments and idleRevisions make as many ReplicaSets as revisionHistoryLimit's default lets there be.
	idleDeployments = 5_000
	idleRevisions   = 10

	hashLabel   = appsv1.DefaultDeploymentUniqueLabelKey
	revisionKey = "deployment.kubernetes.io/revision"
	desiredKey  = "deployment.kubernetes.io/desired-replicas"
	maxKey      = "deployment.kubernetes.io/max-replicas"
)

var (
	allUp         = metric{"20 Deployments of 50 pods up", "s"}
	allUpCPU      = metric{"manager CPU, up", "s"}
	allRolled     = metric{"new template rolled out", "s"}
	allRolledCPU  = metric{"manager CPU, rollout", "s"}
	deployWrites  = metric{"Deployment writes, all phases", ""}
	calmClashes   = metric{"conflicts of the Deployment loop, up and rollout", ""}
	rolloutMemory = metric{"resident after all", "MiB"}
)

// measureRollouts brings Deployments up and rolls a template out.
func measureRollouts(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := controlplane.StartKubelet(ctx, r.client, benchNamespace); err != nil {
		return nil, err
	}
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	phases := []struct {
		name      string
		wall, cpu metric
		work      func() error
	}{
		{"up", allUp, allUpCPU, func() error { return r.createDeployments(ctx) }},
		{"rollout", allRolled, allRolledCPU, func() error { return r.setImages(ctx, "v2") }},
	}
	var readings []reading
	var sum written
	for _, phase := range phases {
		last, err := r.writtenDuring(ctx, func() error {
			e, err := r.effort(ctx, m, fileName(phase.name), func() (time.Time, error) { return r.rolledOut(ctx, phase.work) })
			readings = append(readings, reading{phase.wall, e.wall}, reading{phase.cpu, e.manager})
			return err
		})
		if err != nil {
			return nil, err
		}
		readings = append(readings, last.readings(", "+phase.name)...)
		sum = sum.plus(last)
	}
	used, err := memoryOf(m.Pid())
	return append(readings,
		reading{deployWrites, sum.deployments}, reading{calmClashes, sum.conflicts},
		reading{rolloutMemory, used.resident},
	), err
}

type written struct {
	deployments float64
	sets        float64 // the Deployment loop's, to ReplicaSets
	statuses    float64 // the ReplicaSet loop's, to statuses of ReplicaSets
	conflicts   float64
	clashes     float64
}

func (w written) plus(other written) written {
	return written{w.deployments + other.deployments, w.sets + other.sets, w.statuses + other.statuses, w.conflicts + other.conflicts, w.clashes + other.clashes}
}

// readings names the numbers, each with the same ending.
func (w written) readings(ending string) []reading {
	return []reading{
		{metric{"Deployment writes" + ending, ""}, w.deployments},
		{metric{"ReplicaSet writes of the Deployment loop" + ending, ""}, w.sets},
		{metric{"ReplicaSet statuses" + ending, ""}, w.statuses},
		{metric{"conflicts of ReplicaSet statuses" + ending, ""}, w.clashes},
		{conflictsOfBoth(ending), w.conflicts + w.clashes},
	}
}

// conflictsOfBoth is the metric of a phase for the conflicts of the loops of Deployments and of ReplicaSets.
func conflictsOfBoth(ending string) metric { return metric{"conflicts of both loops" + ending, ""} }

func countWritten(events []auditv1.Event) (w written) {
	for _, e := range events {
		conflict := 0.
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 409 {
			conflict = 1
		}
		switch {
		case deploymentLoop(&e) && e.ObjectRef.Resource == "deployments":
			w.deployments++
			w.conflicts += conflict
		case deploymentLoop(&e) && e.ObjectRef.Resource == "replicasets":
			w.sets++
			w.conflicts += conflict
		case replicaSetStatus(&e):
			w.statuses++
			w.clashes += conflict
		}
	}
	return w
}

func (r *rig) writtenDuring(ctx context.Context, work func() error) (written, error) {
	all := func(*auditv1.Event) bool { return true }
	before, err := r.cluster.ReadAuditLog(all)
	if err != nil {
		return written{}, err
	}
	if err := work(); err != nil {
		return written{}, err
	}
	if err := pause(ctx, 2*settled); err != nil {
		return written{}, err
	}
	after, err := r.cluster.ReadAuditLog(all)
	if err != nil {
		return written{}, err
	}
	return countWritten(after[len(before):]), nil
}

func deploymentLoop(e *auditv1.Event) bool {
	return strings.HasSuffix(e.UserAgent, "/"+deploymentController) && e.ObjectRef != nil && e.ObjectRef.Resource != "events" &&
		slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb)
}

func replicaSetStatus(e *auditv1.Event) bool {
	return strings.HasSuffix(e.UserAgent, "/"+replicaSetController) && e.ObjectRef != nil && e.ObjectRef.Resource == "replicasets" &&
		e.ObjectRef.Subresource == "status"
}

func deploymentName(i int) string { return fmt.Sprintf("deployment-%d", i) }

func (r *rig) createDeployments(ctx context.Context) error {
	return inParallel(ctx, writers, rolloutDeployments, func(ctx context.Context, i int) error {
		return r.createDeployment(ctx, deploymentName(i), rolloutPods)
	})
}

func (r *rig) createDeployment(ctx context.Context, name string, replicas int32) error {
	d := controlplane.Deployment(benchNamespace, name, replicas)
	d.Spec.Template.Spec.Containers[0].Image = imageOf("v1")
	if _, err := r.client.AppsV1().Deployments(benchNamespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Deployment: %w", err)
	}
	return nil
}

func imageOf(tag string) string { return "registry.example.com/shop/main:" + tag }

func (r *rig) setImages(ctx context.Context, tag string) error {
	return inParallel(ctx, writers, rolloutDeployments, func(ctx context.Context, i int) error {
		return r.setImage(ctx, deploymentName(i), tag)
	})
}

func (r *rig) setImage(ctx context.Context, name, tag string) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, imageOf(tag))
	if _, err := r.client.AppsV1().Deployments(benchNamespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the template of a Deployment: %w", err)
	}
	return nil
}

func (r *rig) rolledOut(ctx context.Context, do func() error) (time.Time, error) {
	if err := do(); err != nil {
		return time.Time{}, err
	}
	// After the last change: an earlier state may have been complete, too.
	list, err := r.client.AppsV1().Deployments(benchNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("list Deployments: %w", err)
	}
	open := map[string]bool{}
	for i := range list.Items {
		if !isRolledOut(&list.Items[i]) {
			open[list.Items[i].Name] = true
		}
	}
	if len(open) == 0 {
		return time.Now(), nil
	}
	w, err := r.client.AppsV1().Deployments(benchNamespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return time.Time{}, fmt.Errorf("watch Deployments: %w", err)
	}
	defer w.Stop()
	return follow(ctx, w, func(e watch.Event) bool {
		if d, ok := e.Object.(*appsv1.Deployment); ok && isRolledOut(d) {
			delete(open, d.Name)
		}
		return len(open) == 0
	})
}

func isRolledOut(d *appsv1.Deployment) bool {
	want, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

// ownedDeployments fills benchNamespace with Deployments of a pod each and the ReplicaSets of a full history. All
// statuses are current, so that a manager only watches.
func ownedDeployments(ctx context.Context, r *rig) error {
	return inParallel(ctx, writers, idleDeployments, func(ctx context.Context, i int) error {
		d := controlplane.Deployment(benchNamespace, deploymentName(i), 1)
		d.Annotations = map[string]string{revisionKey: itoa(idleRevisions + 1)}
		d.Spec.Template = ordinarySet(d.Name).Spec.Template
		delete(d.Spec.Template.Labels, hashLabel)
		d.Spec.Template.Labels["app"] = d.Name
		deployments := r.client.AppsV1().Deployments(benchNamespace)
		d, err := deployments.Create(ctx, d, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create Deployment: %w", err)
		}
		now := metav1.Now()
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, TerminatingReplicas: ptr.To[int32](0),
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable",
					Message: "Deployment has minimum availability.", LastUpdateTime: now, LastTransitionTime: now},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
					Message:        fmt.Sprintf("ReplicaSet %q has successfully progressed.", revisionName(d, idleRevisions+1)),
					LastUpdateTime: now, LastTransitionTime: now},
			},
		}
		if _, err := deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("post the status of a Deployment: %w", err)
		}
		for revision := 1; revision <= idleRevisions+1; revision++ {
			if err := r.createRevision(ctx, d, revision); err != nil {
				return err
			}
		}
		return nil
	})
}

func revisionName(d *appsv1.Deployment, revision int) string {
	return fmt.Sprintf("%s-%d", d.Name, revision)
}

func (r *rig) createRevision(ctx context.Context, d *appsv1.Deployment, revision int) error {
	hash, size := fmt.Sprintf("%s-%d", "hash", revision), int32(0)
	if revision > idleRevisions {
		size = 1
	}
	set := controlplane.ReplicaSet(benchNamespace, revisionName(d, revision), size, func(s *appsv1.ReplicaSet) {
		s.Annotations = map[string]string{revisionKey: itoa(revision), desiredKey: "1", maxKey: "2"}
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		s.Spec.Template = *d.Spec.Template.DeepCopy()
		if size == 0 {
			s.Spec.Template.Annotations["example.com/checksum"] = fmt.Sprintf("%064d", revision+1)
		}
		s.Spec.Template.Labels[hashLabel] = hash
		s.Labels = s.Spec.Template.Labels
		s.Spec.Selector.MatchLabels = map[string]string{"app": d.Name, hashLabel: hash}
	})
	sets := r.client.AppsV1().ReplicaSets(benchNamespace)
	set, err := sets.Create(ctx, set, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create ReplicaSet: %w", err)
	}
	set.Status = appsv1.ReplicaSetStatus{
		ObservedGeneration: set.Generation, Replicas: size, FullyLabeledReplicas: size, ReadyReplicas: size, AvailableReplicas: size,
		TerminatingReplicas: ptr.To[int32](0),
	}
	if _, err := sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("post the status of a ReplicaSet: %w", err)
	}
	if size == 0 {
		return nil
	}
	if err := r.createOwnedPod(ctx, set, 0); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, now)
	_, err = r.client.CoreV1().Pods(benchNamespace).Patch(ctx, podName(set.Name, 0), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("post the status of a pod: %w", err)
	}
	return nil
}
