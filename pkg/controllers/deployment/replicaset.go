package deployment

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// replicaSet is a ReplicaSet of a Deployment with the input of a plan.
type replicaSet struct {
	rs         *appsv1.ReplicaSet // read only
	current    bool               // has the template of the Deployment
	resizedAt  time.Time          // last resize by this process in the term; zero if there is none
	backoff    time.Duration      // until a rejected change is sent again
	rejections int                // of changes, in a row
	pods       podCounts

	// statusUnreliable is true if the status may count pods that are about to be deleted. That is so after a raise that
	// was sent before the status showed the last reduction, and at the start of a term.
	statusUnreliable bool
}

// podCounts counts the cached pods that have neither failed nor succeeded.
type podCounts struct {
	unfinished int // terminating pods included
	ready      int // without terminating pods
	available  int // ready for the minReadySeconds of the ReplicaSet
}

// size returns spec.replicas.
func (s replicaSet) size() int { return replicasOrOne(s.rs.Spec.Replicas) }

func (s replicaSet) isActive() bool { return s.size() > 0 }

// isEmpty reports whether the status shows that the ReplicaSet has no pods, apart from terminating ones, and will
// create none.
func (s replicaSet) isEmpty() bool {
	return !s.isActive() && s.rs.Status.Replicas == 0 && s.rs.Status.ObservedGeneration >= s.rs.Generation
}

// Three sources limit the number of available pods. Pods beyond the size will be deleted. The status may be old.
// The pod cache shows unready pods before the status does, but may be old, too. Each source can only lower the
// number of pods that a plan relies on.
//
//	                   size  status     pod cache   further condition
//	statusAvailable    yes   available  -
//	availableInBoth    yes   available  available
//	availableInEither  yes   available  available   the higher one; only to find out whether pods are missing
//	safelyAvailable    yes   available  available   0 if the status is unreliable; see there for minReadySeconds
//	unreadySurplus     yes   ready      ready       pods that a smaller size deletes before any ready pod

func (s replicaSet) statusAvailable() int {
	return max(0, min(s.size(), int(s.rs.Status.AvailableReplicas)))
}

func (s replicaSet) availableInBoth() int { return min(s.statusAvailable(), max(0, s.pods.available)) }

func (s replicaSet) availableInEither() int {
	return max(s.statusAvailable(), min(s.size(), s.pods.available))
}

// safelyAvailable returns the number of pods that a plan may rely on. With minReadySeconds it is 0 until the status
// shows the last reduction: an available pod may be deleted before one that is only ready. If pods cannot be deleted,
// each pod beyond the size may cost an available one.
func (s replicaSet) safelyAvailable() int {
	slow, status := s.rs.Spec.MinReadySeconds > 0, s.rs.Status
	switch {
	case s.statusUnreliable || slow && !statusCaughtUp(s.rs) && !s.failsToDelete():
		return 0
	case slow:
		surplus := max(0, int(status.Replicas)-s.size())
		return max(0, min(s.size(), min(int(status.AvailableReplicas), s.pods.available)-surplus))
	}
	return s.availableInBoth()
}

// safelyAvailableAt returns safelyAvailable after a reduction to a size.
func (s replicaSet) safelyAvailableAt(size int) int {
	if s.rs.Spec.MinReadySeconds > 0 {
		return 0
	}
	return min(s.safelyAvailable(), size)
}

func (s replicaSet) countsDiffer() bool { return s.availableInBoth() < s.availableInEither() }

func (s replicaSet) unreadySurplus() int {
	return max(0, s.size()-max(int(s.rs.Status.ReadyReplicas), s.pods.ready))
}

// statusCaughtUp reports whether the status shows the last reduction. At its first generation a ReplicaSet has not
// been reduced. While a delete of a pod is rejected, the status may never show it.
// minikcm's ReplicaSet controller no longer counts pods that it has deleted, so the status may show a reduction before
// the pod cache does.
func statusCaughtUp(rs *appsv1.ReplicaSet) bool {
	status := rs.Status
	return (status.ObservedGeneration == rs.Generation || rs.Generation <= 1) && int(status.Replicas) <= replicasOrOne(rs.Spec.Replicas)
}

// failsToDelete reports whether the ReplicaSet controller cannot delete pods. The reason of the condition is
// ignored: upstream's controller keeps the first reason.
func (s replicaSet) failsToDelete() bool {
	status := s.rs.Status
	return status.ObservedGeneration == s.rs.Generation && int(status.Replicas) > s.size() &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
			return c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue
		})
}

// shrinkWait returns the time for which the ReplicaSet controller may still act on the last size, at most limit
// after the resize. Reductions until then are combined into one write.
func (s replicaSet) shrinkWait(limit time.Duration, now time.Time) time.Duration {
	if s.resizedAt.IsZero() || s.rs.Status.ObservedGeneration >= s.rs.Generation {
		return 0
	}
	return max(0, s.resizedAt.Add(limit).Sub(now))
}

// hasNoPods reports whether status and pod cache show no pods, and the ReplicaSet controller creates none for an
// earlier size.
func (s replicaSet) hasNoPods() bool {
	return s.isEmpty() && ptr.Deref(s.rs.Status.TerminatingReplicas, 0) == 0 && s.pods.unfinished == 0
}

// compareAge orders older ReplicaSets first. The order is total: names in a namespace differ.
func compareAge(a, b replicaSet) int {
	return cmp.Or(a.rs.CreationTimestamp.Compare(b.rs.CreationTimestamp.Time), cmp.Compare(a.rs.Name, b.rs.Name))
}

// bounds holds replicas, maxSurge and maxUnavailable as numbers of pods. None is negative, and unavailable is at
// most replicas.
type bounds struct {
	replicas    int
	surge       int
	unavailable int
}

func (b bounds) maxTotal() int     { return b.replicas + b.surge }
func (b bounds) minAvailable() int { return b.replicas - b.unavailable }

// boundsOf resolves percentages: surge is rounded up and unavailable down. If both are 0, one pod may be
// unavailable, or a rollout could not start. Invalid values count as 0.
func boundsOf(d *appsv1.Deployment) bounds {
	b := bounds{replicas: replicasOrOne(d.Spec.Replicas)}
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return b
	}
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		b.surge = resolveBound(r.MaxSurge, b.replicas, true)
		b.unavailable = resolveBound(r.MaxUnavailable, b.replicas, false)
	}
	if b.surge == 0 && b.unavailable == 0 {
		b.unavailable = 1
	}
	b.unavailable = min(b.unavailable, b.replicas)
	return b
}

func resolveBound(value *intstr.IntOrString, replicas int, roundUp bool) int {
	n, _ := intstr.GetScaledValueFromIntOrPercent(value, replicas, roundUp) // 0 beside an error
	return max(n, 0)
}

// replicasOrOne returns spec.replicas, or 1 as the API server's default.
func replicasOrOne(replicas *int32) int { return max(int(ptr.Deref(replicas, 1)), 0) }
