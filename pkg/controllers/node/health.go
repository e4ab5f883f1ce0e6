package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/internal/nodestatus"
)

// Reasons and messages of the conditions we post, and of the events about them, as kube-controller-manager v1.37 spells them.
const (
	reasonUnknown       = "NodeStatusUnknown"
	messageUnknown      = "Kubelet stopped posting node status."
	reasonNeverUpdated  = "NodeStatusNeverUpdated"
	messageNeverUpdated = "Kubelet never posted node status."
)

// kubeletConditions are the conditions that turn Unknown with their kubelet, in the order in which missing ones are appended.
// NetworkUnavailable is not among them: the control plane owns it.
var kubeletConditions = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// deadlineSlack is how long after a deadline the node is looked at: a node is silent strictly after its grace period.
const deadlineSlack = time.Millisecond

// Deadlines are looked at together: a process that wakes up for each of a thousand nodes does little else. deadlineStep is the most
// that may cost a verdict, and deadlineShare the share of a grace period that it may cost.
const (
	deadlineStep  = 200 * time.Millisecond
	deadlineShare = 100
)

// heartbeat is what this process has seen of one kubelet. Only seen is on our clock; renewed and posted are the kubelet's
// words and are compared with nothing but themselves, so a node's wrong clock does no harm.
type heartbeat struct {
	seen      time.Time     // the last sign of life, when we saw it; a node that never posted starts at its creation
	renewed   time.Time     // renewTime of the Lease, zero if none was seen
	hasPosted bool          // a Ready condition was seen
	posted    time.Time     // its lastHeartbeatTime, zero if it had none
	extended  time.Duration // grace given since the last sign of life because we had been blind

	intervals [2]time.Duration // between the last renewals, the latest first, by the kubelet's clock; zero if not known
}

// firstHeartbeat is the heartbeat of a node at first sight. The Lease may be that of an earlier node of the name; it counts as a
// sign of life all the same, once.
func firstHeartbeat(node *corev1.Node, renewed, now time.Time) heartbeat {
	h := heartbeat{seen: node.CreationTimestamp.Time}
	return h.afterStatus(node, now).afterLease(renewed, now)
}

// afterStatus takes in a node's status. A missing Ready condition is no sign of life, a new heartbeat time is, whichever way
// it moved.
func (h heartbeat) afterStatus(node *corev1.Node, now time.Time) heartbeat {
	ready := condition(node, corev1.NodeReady)
	if ready == nil || h.hasPosted && ready.LastHeartbeatTime.Time.Equal(h.posted) {
		return h
	}
	h.hasPosted = true
	h.posted = ready.LastHeartbeatTime.Time
	return h.alive(now)
}

// afterLease takes in the renewTime of the node's Lease; zero is no Lease, or one that was never renewed.
func (h heartbeat) afterLease(renewed, now time.Time) heartbeat {
	if !renewed.After(h.renewed) {
		return h
	}
	return h.renewedAt(renewed).alive(now)
}

// afterLiveLease takes in the renewTime that a consistent read of the Lease showed. Such a read is as of a moment after it was asked for, so a time
// that went back was written since: the kubelet's clock was ahead and has been set, or the watch was faster than the answer, which does no harm. By the watch, which may lag behind a read, that cannot
// be told.
func (h heartbeat) afterLiveLease(renewed, now time.Time) heartbeat {
	if renewed.IsZero() || renewed.Equal(h.renewed) {
		return h
	}
	return h.renewedAt(renewed).alive(now)
}

// renewedAt takes in a new renewTime. An interval is known from two of them.
func (h heartbeat) renewedAt(t time.Time) heartbeat {
	if between := t.Sub(h.renewed); !h.renewed.IsZero() && between > 0 {
		h.intervals = [2]time.Duration{between, h.intervals[0]}
	}
	h.renewed = t
	return h
}

// interval is how often the kubelet renews its Lease, zero if that is not known. Of the last two intervals the shorter counts: the other may
// have had an outage in it, or the setting of a clock.
func (h heartbeat) interval() time.Duration {
	if h.intervals[1] == 0 {
		return h.intervals[0]
	}
	return min(h.intervals[0], h.intervals[1])
}

// isLate reports whether a kubelet whose grace ends at due is later than it ever is when all is well: half its grace is over, and one and
// a half of its own intervals.
func (h heartbeat) isLate(due time.Time, grace time.Duration, now time.Time) bool {
	return due.Sub(now) < grace/2 && now.Sub(h.seen) > h.interval()*3/2
}

// isExhausted reports whether the node has been given all the time that blindness may give; from then on only a live read speaks for it.
func (h heartbeat) isExhausted(grace time.Duration) bool {
	return h.extended > 0 && h.extended >= maxExtension*grace
}

func (h heartbeat) alive(now time.Time) heartbeat {
	h.seen, h.extended = now, 0
	return h
}

// judgement says whether a node has been silent for too long.
type judgement struct {
	silent  bool
	recheck time.Duration // when not silent: how long until it may be
}

// judge decides about a node at now. judged is when it was judged before, zero if never: two judgements of a node are at least
// a monitor period apart, because upstream's tests, and whoever sets grace below the period, rely on it.
func judge(h heartbeat, judged time.Time, hasReady bool, cfg Config, now time.Time) judgement {
	due := deadline(h, judged, hasReady, cfg)
	if now.After(due) {
		return judgement{silent: true}
	}
	return judgement{recheck: due.Sub(now) + deadlineSlack + untilStep(due, min(deadlineStep, cfg.MonitorGracePeriod/deadlineShare))}
}

// untilStep is how long after t the next multiple of step is, by the wall clock: deadlines of all nodes meet there.
func untilStep(t time.Time, step time.Duration) time.Duration {
	if step <= 0 {
		return 0
	}
	return step - 1 - time.Duration(t.UnixNano()-1)%step
}

// deadline is the last instant at which a node still counts as alive.
func deadline(h heartbeat, judged time.Time, hasReady bool, cfg Config) time.Time {
	grace := cfg.MonitorGracePeriod
	if !hasReady {
		grace = cfg.StartupGracePeriod
	}
	due := h.seen.Add(grace)
	if floor := judged.Add(cfg.MonitorPeriod); !judged.IsZero() && floor.After(due) {
		return floor
	}
	return due
}

// unknownConditions returns a node's conditions as they are once its kubelet has been silent for too long, and whether that
// changes Ready. The node itself is left alone.
func unknownConditions(node *corev1.Node, now time.Time) (conditions []corev1.NodeCondition, changed bool) {
	ready := condition(node, corev1.NodeReady)
	if ready != nil && ready.Status == corev1.ConditionUnknown {
		return node.Status.Conditions, false
	}
	at := metav1.NewTime(now).Rfc3339Copy() // the API keeps whole seconds
	conditions = append(conditions, node.Status.Conditions...)
	for _, kind := range kubeletConditions {
		c := nodestatus.Find(conditions, kind)
		if c == nil {
			conditions = append(conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: reasonNeverUpdated, Message: messageNeverUpdated,
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: at,
			})
			continue
		}
		if c.Status != corev1.ConditionUnknown {
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, reasonUnknown, messageUnknown
			c.LastTransitionTime = at
		}
	}
	return conditions, true
}

// condition returns the condition of a type, nil if the node has none.
func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	return nodestatus.Find(node.Status.Conditions, kind)
}

// readiness is the status of the Ready condition, empty if there is none.
func readiness(node *corev1.Node) corev1.ConditionStatus { return nodestatus.Ready(node) }
