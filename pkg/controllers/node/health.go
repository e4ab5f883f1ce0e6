package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/internal/nodestatus"
)

// Reasons and messages of kube-controller-manager v1.37.
const (
	reasonUnknown       = "NodeStatusUnknown"
	messageUnknown      = "Kubelet stopped posting node status."
	reasonNeverUpdated  = "NodeStatusNeverUpdated"
	messageNeverUpdated = "Kubelet never posted node status."
)

// kubeletConditions are the conditions that become Unknown, in the order in which missing conditions are
// appended. The control plane owns NetworkUnavailable.
var kubeletConditions = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// deadlineSlack is the time from a deadline to the check: a node is silent strictly after its grace period.
const deadlineSlack = time.Millisecond

// deadlineStep rounds the times of checks up, because a wakeup for each of a thousand nodes costs CPU.
const deadlineStep = 200 * time.Millisecond

// heartbeat holds the signs of life of one kubelet. Only seen is a time of the local clock. The times renewed
// and posted come from the kubelet and are compared only with later values of the same field, so a wrong clock
// of a node does no harm.
type heartbeat struct {
	seen      time.Time     // last sign of life; at first the creation of the node
	renewed   time.Time     // renewTime of the Lease, zero without a Lease
	hasPosted bool          // a Ready condition was observed
	posted    time.Time     // lastHeartbeatTime of the Ready condition
	extra     time.Duration // silence before outages that was forgiven since the last sign of life
}

// afterStatus returns the heartbeat after a status of the node. Any change of the heartbeat time is a sign of life.
func (h heartbeat) afterStatus(node *corev1.Node, now time.Time) heartbeat {
	ready := readyCondition(node)
	if ready == nil || h.hasPosted && ready.LastHeartbeatTime.Time.Equal(h.posted) {
		return h
	}
	h.hasPosted = true
	h.posted = ready.LastHeartbeatTime.Time
	return h.alive(now)
}

// afterLease returns the heartbeat after an event or a live read of the Lease. An earlier renewTime is a sign of
// life too: the clock of the kubelet was set back.
func (h heartbeat) afterLease(renewed, now time.Time) heartbeat {
	if renewed.IsZero() || renewed.Equal(h.renewed) {
		return h
	}
	h.renewed = renewed
	return h.alive(now)
}

func (h heartbeat) alive(now time.Time) heartbeat {
	h.seen, h.extra = now, 0
	return h
}

// setUnknown sets the conditions of a silent node to Unknown, and reports whether Ready changes.
func setUnknown(node *corev1.Node, now time.Time) (changed bool) {
	if readiness(node) == corev1.ConditionUnknown {
		return false
	}
	changedAt := metav1.NewTime(now).Rfc3339Copy() // the API keeps whole seconds
	for _, kind := range kubeletConditions {
		c := nodestatus.FindCondition(node.Status.Conditions, kind)
		if c == nil {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: reasonNeverUpdated, Message: messageNeverUpdated,
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: changedAt,
			})
			continue
		}
		if c.Status != corev1.ConditionUnknown {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, reasonUnknown, messageUnknown
			c.LastTransitionTime = changedAt
		}
	}
	return true
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	return nodestatus.FindCondition(node.Status.Conditions, corev1.NodeReady)
}

// readiness returns the status of the Ready condition, empty without the condition.
func readiness(node *corev1.Node) corev1.ConditionStatus { return nodestatus.ReadyStatus(node) }
