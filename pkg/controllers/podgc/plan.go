package podgc

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// collectReason is the reason for collecting a pod. The text is the reason label of the metrics.
type collectReason string

// Values of upstream, kube-controller-manager v1.37.
const (
	none         collectReason = ""
	terminated   collectReason = "terminated"
	outOfService collectReason = "out-of-service"
	orphaned     collectReason = "orphaned"
	unscheduled  collectReason = "unscheduled"
)

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

// reasonFor returns the reason for collecting a pod on a node. quarantined is true while the quarantine of a
// missing node lasts, surplus for a pod in excess of the threshold of finished pods.
func reasonFor(pod *caches.Pod, node nodeState, quarantined, surplus bool) collectReason {
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

// isForceDeleted reports whether a pod was deleted without grace. Only finalizers keep such a pod.
func isForceDeleted(pod *caches.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// isTerminated reports whether the pod counts as finished for the threshold. Unlike IsFinished, isTerminated
// is true for an empty phase, as upstream.
func isTerminated(pod *caches.Pod) bool {
	switch pod.Phase {
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
		return false
	}
	return true
}

// surplusPods returns the finished pods in excess of a threshold, in the order of deletion. A pod that only
// finalizers keep does not count.
func surplusPods(pods []*caches.Pod, threshold int) []*caches.Pod {
	var finished []*caches.Pod
	for _, pod := range pods {
		if isTerminated(pod) && !isForceDeleted(pod) {
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

// compareFinished orders pods evicted by a kubelet first, then by age and name.
func compareFinished(a, b *caches.Pod) int {
	rank := func(p *caches.Pod) int {
		if p.Phase == corev1.PodFailed && p.Reason == "Evicted" {
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
