package tainteviction

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// taint is a NoExecute taint with its start by the clock of this process.
type taint struct {
	corev1.Taint
	since   time.Time
	keySeen time.Time // of the sighting
}

// evictingTaints returns the taints of a node that may evict pods at now.
func evictingTaints(node *corev1.Node, seen *firstSeen, now time.Time) []taint {
	var evicting []taint
	isReady := nodestatus.ReadyStatus(node) == corev1.ConditionTrue
	for _, t := range noExecuteTaints(node.Spec.Taints) {
		if isHealthTaint(t) && isReady {
			continue // the node has recovered, and the node lifecycle controller will remove the taint
		}
		first := seen.find(node.Name, t, now)
		evicting = append(evicting, taint{t, startTime(ptr.Deref(t.TimeAdded, metav1.Time{}), first.idSeen), first.keySeen})
	}
	return evicting
}

func noExecuteTaints(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
}

// isHealthTaint reports whether a NoExecute taint follows the Ready condition of the node.
func isHealthTaint(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
}

// startTime returns the end of the second of a stored timestamp, or seen if that is earlier or the timestamp
// is zero. The API server stores whole seconds, so no taint or binding counts as older than its timestamp. The
// result keeps the monotonic reading of seen: a later step of the wall clock does not move deadlines.
func startTime(stamp metav1.Time, seen time.Time) time.Time {
	if age := seen.Sub(stamp.Add(time.Second)); !stamp.IsZero() && age > 0 {
		return seen.Add(-age)
	}
	return seen
}

// boundAt returns the time at which a pod was bound to its node.
func boundAt(pod *caches.Pod) metav1.Time {
	if pod.Scheduled.Status == corev1.ConditionTrue {
		return pod.Scheduled.Since
	}
	return pod.CreationTimestamp // created with a node name
}

// longestToleration is the largest number of seconds that fits into time.Duration. Longer tolerations have no limit.
const longestToleration = int64(math.MaxInt64 / time.Second)

// tolerationOf returns the duration of the first toleration that matches a taint, and whether the duration is
// limited.
func tolerationOf(t corev1.Taint, tolerations []corev1.Toleration) (time.Duration, bool) {
	for i := range tolerations {
		// The API server accepts Lt and Gt only if its gate TaintTolerationComparisonOperators is on.
		if !tolerations[i].ToleratesTaint(klog.Logger{}, &t, true) {
			continue
		}
		seconds := tolerations[i].TolerationSeconds
		if seconds == nil || *seconds > longestToleration {
			return 0, false
		}
		return time.Duration(max(0, *seconds)) * time.Second, true
	}
	return 0, true
}

// decision is the decision about a pod. The times are zero if the pod stays.
type decision struct {
	due        time.Time // the deadline
	recheckAt  time.Time // after the deadline if the health taints are trusted only later
	countdowns []countdown
}

func (d decision) stays() bool { return d.due.IsZero() }

// leaves reports whether the pod must leave at now. A pod that neither stays nor leaves waits until recheckAt.
func (d decision) leaves(now time.Time) bool { return !d.stays() && !d.recheckAt.After(now) }

// countdown continues while value and timeAdded of a taint change, if each value has the same toleration and no event
// shows the node without the taint.
type countdown struct {
	taint      string    // key
	keySeen    time.Time // of the taint
	toleration time.Duration
	start      time.Time
}

// decide decides about a pod with these tolerations that was bound to the node at bound. Health taints evict no pod
// before trusted. The countdowns continue.
func decide(taints []taint, tolerations []corev1.Toleration, countdowns []countdown, bound, trusted time.Time) decision {
	var d decision
	for _, t := range taints {
		toleration, limited := tolerationOf(t.Taint, tolerations)
		if !limited {
			continue
		}
		next := countdown{t.Key, t.keySeen, toleration, timing.Later(t.since, bound)}
		for _, c := range countdowns {
			if c.taint == t.Key && c.keySeen.Equal(t.keySeen) && c.toleration == toleration {
				next.start = earlierOf(c.start, next.start)
			}
		}
		d.countdowns = append(d.countdowns, next)
		end := next.start.Add(toleration)
		d.due = earlierOf(d.due, end)
		if isHealthTaint(t.Taint) {
			end = timing.Later(end, trusted)
		}
		d.recheckAt = earlierOf(d.recheckAt, end)
	}
	return d
}

// earlierOf returns b if a is zero.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// sameForPods reports whether two versions of a node give every pod the same deadline.
func sameForPods(a, b *corev1.Node) bool {
	return nodestatus.ReadyStatus(a) == nodestatus.ReadyStatus(b) &&
		equality.Semantic.DeepEqual(noExecuteTaints(a.Spec.Taints), noExecuteTaints(b.Spec.Taints))
}
