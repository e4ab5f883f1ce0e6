package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"minikcm/pkg/caches"
	"minikcm/pkg/outcome"
)

// Reasons of the ReplicaFailure condition and of the events beside it.
const (
	reasonFailedCreate = "FailedCreate"
	reasonFailedDelete = "FailedDelete"
)

// countPods returns a status with the counts of active pods.
func countPods(rs *appsv1.ReplicaSet, active []*caches.Pod, now time.Time) appsv1.ReplicaSetStatus {
	counts := appsv1.ReplicaSetStatus{Replicas: int32(len(active))}
	template := labels.SelectorFromValidatedSet(rs.Spec.Template.Labels)
	for _, pod := range active {
		if template.Matches(labels.Set(pod.Labels)) {
			counts.FullyLabeledReplicas++
		}
		if pod.IsReady() {
			counts.ReadyReplicas++
		}
		if pod.IsAvailable(rs.Spec.MinReadySeconds, now) {
			counts.AvailableReplicas++
		}
	}
	return counts
}

// applyResult is the result of the creates and deletes of a sync.
type applyResult struct {
	deferred     bool // no request was sent: the condition does not change
	err          error
	reason       string        // of the condition ReplicaFailure if there is an error
	requeueAfter time.Duration // 0 if no requeue is needed

	// Pods whose creation and deletion are confirmed. They change the counts of the status.
	created, deleted []*caches.Pod
}

// newConditions sets ReplicaFailure if the last attempt failed, and removes the condition if the attempt
// succeeded. Without an attempt the condition stays.
func newConditions(old []appsv1.ReplicaSetCondition, a applyResult, now time.Time) []appsv1.ReplicaSetCondition {
	i := slices.IndexFunc(old, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	switch {
	case a.err == nil && (a.deferred || i < 0):
		return old
	case a.err == nil:
		return slices.Delete(slices.Clone(old), i, i+1)
	}
	failure := appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: a.reason,
		Message: outcome.EventMessage(a.err), LastTransitionTime: metav1.NewTime(now),
	}
	if i < 0 {
		return append(slices.Clone(old), failure)
	}
	if old[i].Status == corev1.ConditionTrue {
		failure.LastTransitionTime = old[i].LastTransitionTime
	}
	conditions := slices.Clone(old)
	conditions[i] = failure
	return conditions
}

func sameStatus(a, b appsv1.ReplicaSetStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// sameCounts compares the counts only.
func sameCounts(a, b appsv1.ReplicaSetStatus) bool {
	a.Conditions, a.ObservedGeneration, b.Conditions, b.ObservedGeneration = nil, 0, nil, 0
	return sameStatus(a, b)
}

// onlyFewerTerminating reports whether the new status only lowers terminatingReplicas, and not to zero.
func onlyFewerTerminating(from, to appsv1.ReplicaSetStatus) bool {
	before, after := from.TerminatingReplicas, to.TerminatingReplicas
	from.TerminatingReplicas = after
	return before != nil && after != nil && *after < *before && *after > 0 && sameStatus(from, to)
}

// onlyMore reports whether the new status only raises counts, does not reach all replicas, and at most
// lowers terminatingReplicas. More replicas may come with another generation.
func onlyMore(rs *appsv1.ReplicaSet, to appsv1.ReplicaSetStatus) bool {
	from, all := rs.Status, to.Replicas
	rise := to.Replicas >= from.Replicas && to.ReadyReplicas >= from.ReadyReplicas && to.AvailableReplicas >= from.AvailableReplicas
	reached := to.ReadyReplicas == all && from.ReadyReplicas != all || to.AvailableReplicas == all && from.AvailableReplicas != all
	if to.Replicas > from.Replicas {
		from.Replicas, from.FullyLabeledReplicas, from.ObservedGeneration = to.Replicas, to.FullyLabeledReplicas, to.ObservedGeneration
	}
	from.ReadyReplicas, from.AvailableReplicas = to.ReadyReplicas, to.AvailableReplicas
	return rise && !reached && (sameStatus(from, to) || onlyFewerTerminating(from, to))
}
