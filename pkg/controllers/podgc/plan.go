package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// cause is the reason for collecting a pod. The text is the reason label of the metrics.
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

// nodeState holds the facts about a node that decide about its pods.
type nodeState struct {
	exists       bool
	outOfService bool
}

func stateOf(node *corev1.Node) nodeState {
	return nodeState{exists: true, outOfService: isOutOfService(node)}
}

// isOutOfService reports whether a node has the out-of-service taint and is not Ready.
func isOutOfService(node *corev1.Node) bool {
	return nodestatus.ReadyStatus(node) != corev1.ConditionTrue &&
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// causeFor returns the cause for collecting a pod on a node. quarantined is true while the quarantine of a
// missing node lasts, surplus for a pod in excess of the threshold of finished pods.
func causeFor(pod *caches.Pod, node nodeState, quarantined, surplus bool) cause {
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

// mayConcern reports whether the node may be a cause for collecting a pod.
func mayConcern(node nodeState, pod *caches.Pod) bool {
	return !node.exists || node.outOfService && pod.DeletionTimestamp != nil
}

// work holds the remaining steps for collecting a pod.
type work struct {
	fail   bool // set phase Failed
	remove bool // delete with grace period 0
}

// workFor returns the remaining steps for a pod. A pod that was deleted without grace and still exists has
// finalizers.
func workFor(pod *caches.Pod) work {
	return work{
		fail:   !pod.IsFinished(),
		remove: pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0,
	}
}

// isTerminated reports whether the pod counts as finished for the threshold. Unlike IsFinished, isTerminated
// includes unknown phases, as upstream does.
func isTerminated(pod *caches.Pod) bool {
	switch pod.Phase {
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
		return false
	}
	return true
}

// surplusPods returns the finished pods in excess of a threshold, in the order of deletion.
func surplusPods(pods []*caches.Pod, threshold int) []*caches.Pod {
	if threshold <= 0 {
		return nil
	}
	var finished []*caches.Pod
	for _, pod := range pods {
		if isTerminated(pod) && workFor(pod) != (work{}) { // a pod that only finalizers hold does not count
			finished = append(finished, pod)
		}
	}
	excess := len(finished) - threshold
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(finished, compareFinished)
	return finished[:excess]
}

// evictedReason is the status reason of a pod that its kubelet evicted.
const evictedReason = "Evicted"

// compareFinished orders pods evicted by a kubelet first, then by age and name.
func compareFinished(a, b *caches.Pod) int {
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
