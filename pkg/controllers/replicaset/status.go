package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/outcome"
)

// Reasons of the ReplicaFailure condition, and of the events that go with it.
const (
	reasonFailedCreate = "FailedCreate"
	reasonFailedDelete = "FailedDelete"
)

// counts are the numbers in a status.
type counts struct {
	replicas, fullyLabeled, ready, available int32
	terminating                              *int32 // nil: not reported
}

// count counts active pods as they are at now. terminating is reported unless it is negative.
func count(rs *appsv1.ReplicaSet, active []*caches.Pod, terminating int, now time.Time) counts {
	c := counts{replicas: int32(len(active))}
	for _, pod := range active {
		if carries(pod.Labels, rs.Spec.Template.Labels) {
			c.fullyLabeled++
		}
		if isReady(pod) {
			c.ready++
			if isAvailable(pod, rs.Spec.MinReadySeconds, now) {
				c.available++
			}
		}
	}
	if terminating >= 0 {
		c.terminating = new(int32(terminating))
	}
	return c
}

// carries reports whether all the wanted labels are there with equal values.
func carries(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// isAvailable reports whether a ready pod has been so for long enough. Without the time of its transition nobody knows.
func isAvailable(pod *caches.Pod, minReadySeconds int32, now time.Time) bool {
	if minReadySeconds == 0 {
		return true
	}
	return !pod.Ready.Since.IsZero() && !availableAt(pod, minReadySeconds).After(now)
}

func availableAt(pod *caches.Pod, minReadySeconds int32) time.Time {
	return pod.Ready.Since.Add(time.Duration(minReadySeconds) * time.Second)
}

// nextAvailable returns when the first of the ready pods that were not available at now will be; the zero time if there is none.
func nextAvailable(active []*caches.Pod, minReadySeconds int32, now time.Time) time.Time {
	var next time.Time
	for _, pod := range active {
		if !isReady(pod) || pod.Ready.Since.IsZero() || isAvailable(pod, minReadySeconds, now) {
			continue
		}
		if at := availableAt(pod, minReadySeconds); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// applied is what became of a plan.
type applied struct {
	held   bool          // not carried out although the number is wrong: nothing was learnt
	tooFew bool          // pods were to be created, not deleted
	err    error         // the one that the sync fails with
	again  time.Duration // go on after; 0: no need

	// Pods of which answers proved that they are there, and that they are gone or going. They change the counts of the status.
	created, deleted []*caches.Pod
}

// statusOf returns the status that follows from old. Conditions of other types stay as they are.
func statusOf(old appsv1.ReplicaSetStatus, generation int64, c counts, a applied, now time.Time) appsv1.ReplicaSetStatus {
	return appsv1.ReplicaSetStatus{
		Replicas:             c.replicas,
		FullyLabeledReplicas: c.fullyLabeled,
		ReadyReplicas:        c.ready,
		AvailableReplicas:    c.available,
		TerminatingReplicas:  c.terminating,
		ObservedGeneration:   generation,
		Conditions:           conditionsOf(old.Conditions, a, now),
	}
}

// conditionsOf keeps ReplicaFailure true to the last attempt: set while it failed, with the current reason and message, removed when one
// has not, untouched when none was made.
func conditionsOf(old []appsv1.ReplicaSetCondition, a applied, now time.Time) []appsv1.ReplicaSetCondition {
	at := slices.IndexFunc(old, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	switch {
	case a.err == nil && (a.held || at < 0):
		return old
	case a.err == nil && len(old) == 1:
		return nil
	case a.err == nil:
		return slices.Delete(slices.Clone(old), at, at+1)
	}
	failure := appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reasonFailedDelete,
		Message: outcome.EventMessage(a.err), LastTransitionTime: metav1.NewTime(now),
	}
	if a.tooFew {
		failure.Reason = reasonFailedCreate
	}
	if at < 0 {
		return append(slices.Clone(old), failure)
	}
	if old[at].Status == corev1.ConditionTrue {
		failure.LastTransitionTime = old[at].LastTransitionTime
	}
	conditions := slices.Clone(old)
	conditions[at] = failure
	return conditions
}

// sameStatus reports whether writing b over a would change nothing.
func sameStatus(a, b appsv1.ReplicaSetStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// sameNumbers is sameStatus for the counts alone.
func sameNumbers(a, b appsv1.ReplicaSetStatus) bool {
	a.Conditions, a.ObservedGeneration, b.Conditions, b.ObservedGeneration = nil, 0, nil, 0
	return sameStatus(a, b)
}

// onlyFewerEnding reports whether the status changes in nothing but that fewer pods are ending, though not yet none.
func onlyFewerEnding(from, to appsv1.ReplicaSetStatus) bool {
	before, after := from.TerminatingReplicas, to.TerminatingReplicas
	from.TerminatingReplicas = after
	return before != nil && after != nil && *after < *before && *after > 0 && sameStatus(from, to)
}

// onlyMore reports whether the status changes in nothing but that there are more pods, or more ready or available ones, though not yet all, and perhaps that
// fewer are ending. More pods may come with another generation.
func onlyMore(rs *appsv1.ReplicaSet, to appsv1.ReplicaSetStatus) bool {
	from, all := rs.Status, to.Replicas
	rise := to.Replicas >= from.Replicas && to.ReadyReplicas >= from.ReadyReplicas && to.AvailableReplicas >= from.AvailableReplicas
	reached := to.ReadyReplicas == all && from.ReadyReplicas != all || to.AvailableReplicas == all && from.AvailableReplicas != all
	if to.Replicas > from.Replicas {
		from.Replicas, from.FullyLabeledReplicas, from.ObservedGeneration = to.Replicas, to.FullyLabeledReplicas, to.ObservedGeneration
	}
	from.ReadyReplicas, from.AvailableReplicas = to.ReadyReplicas, to.AvailableReplicas
	return rise && !reached && (sameStatus(from, to) || onlyFewerEnding(from, to))
}
