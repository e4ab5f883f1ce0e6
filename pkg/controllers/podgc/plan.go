package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// cause is why a pod is collected; its text is the reason label of the metrics.
type cause string

// Values of upstream, kube-controller-manager v1.37.
const (
	none         cause = ""
	terminated   cause = "terminated"
	outOfService cause = "out-of-service"
	orphaned     cause = "orphaned"
	unscheduled  cause = "unscheduled"
)

var causes = []cause{terminated, outOfService, orphaned, unscheduled}

// nodeState is what a pod's fate depends on of its node.
type nodeState struct {
	exists       bool
	outOfService bool
}

func stateOf(node *corev1.Node) nodeState {
	return nodeState{exists: true, outOfService: isOutOfService(node)}
}

// isOutOfService reports whether somebody has declared the node out of service and it does not claim otherwise.
func isOutOfService(node *corev1.Node) bool {
	return nodestatus.Ready(node) != corev1.ConditionTrue &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// why says for what cause a pod is to be collected, none if for no cause. The node is the one the pod is bound to, if it is. A node
// that does not exist is gone only once its quarantine is over; surplus says that there are too many finished pods without this one.
func why(pod *caches.Pod, node nodeState, quarantined, surplus bool) cause {
	terminating := pod.DeletionTimestamp != nil
	switch {
	case surplus && isTerminated(pod):
		return terminated
	case pod.NodeName == "" && terminating:
		return unscheduled
	case pod.NodeName == "":
		return none
	case !node.exists && !quarantined:
		return orphaned
	case node.outOfService && terminating:
		return outOfService
	}
	return none
}

// mayConcern reports whether a pod that has come or changed may be ours to collect for the sake of its node.
func mayConcern(node nodeState, pod *caches.Pod) bool {
	return !node.exists || node.outOfService && pod.DeletionTimestamp != nil
}

// work is what is left to do about a pod that is to be collected.
type work struct {
	fail   bool // mark it Failed
	remove bool // delete it with no grace
}

// workOn reads off a pod what has been done. A pod that was deleted without grace and still exists is held by finalizers.
func workOn(pod *caches.Pod) work {
	return work{
		fail:   !pod.IsFinished(),
		remove: pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0,
	}
}

// isTerminated reports whether the pod counts as finished for the threshold. Unlike IsFinished it includes phases unknown to us,
// as upstream does.
func isTerminated(pod *caches.Pod) bool {
	switch pod.Phase {
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
		return false
	}
	return true
}

// counts reports whether the pod counts towards the threshold: it has finished and would go away by being deleted.
func counts(pod *caches.Pod) bool { return isTerminated(pod) && workOn(pod) != (work{}) }

// surplus returns the pods in excess of a threshold, in the order in which they are to go. A threshold of zero or less is none.
func surplus(pods []*caches.Pod, threshold int) []*caches.Pod {
	if threshold <= 0 {
		return nil
	}
	var finished []*caches.Pod
	for _, pod := range pods {
		if counts(pod) {
			finished = append(finished, pod)
		}
	}
	excess := len(finished) - threshold
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(finished, goesFirst)
	return finished[:excess]
}

// evictedReason is what a kubelet writes into the status of a pod it evicts.
const evictedReason = "Evicted"

// goesFirst orders finished pods: those that a kubelet evicted, because nothing else ever removes them, then by age, then by name.
func goesFirst(a, b *caches.Pod) int {
	rank := func(p *caches.Pod) int {
		if p.Phase == corev1.PodFailed && p.Reason == evictedReason {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Namespace, b.Namespace),
	)
}

// remaining is how much of a quarantine that began at since is left at now; zero or less if it is over.
func remaining(since, now time.Time, quarantine time.Duration) time.Duration {
	return quarantine - now.Sub(since)
}
