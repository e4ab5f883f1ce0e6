package tainteviction

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// taint is a NoExecute taint and when it began, by this process's clock.
type taint struct {
	corev1.Taint
	since time.Time
}

// nodeState is what the pods' stay on a node depends on. The zero state, of a node that does not exist, evicts nobody.
type nodeState struct {
	taints []taint // NoExecute only, and only those that count
}

// stateOf reads a node's state. seen tells when this process first saw a taint.
func stateOf(node *corev1.Node, seen func(corev1.Taint) time.Time) nodeState {
	var s nodeState
	isReady := nodestatus.Ready(node) == corev1.ConditionTrue
	for _, t := range noExecute(node.Spec.Taints) {
		if ofHealth(t) && isReady {
			continue // the node has recovered and the taint is about to go
		}
		var added metav1.Time
		if t.TimeAdded != nil {
			added = *t.TimeAdded
		}
		s.taints = append(s.taints, taint{Taint: t, since: since(added, seen(t))})
	}
	return s
}

func noExecute(taints []corev1.Taint) []corev1.Taint {
	var found []corev1.Taint
	for _, t := range taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			found = append(found, t)
		}
	}
	return found
}

// ofHealth reports whether a NoExecute taint is one that the node's health puts there and takes away.
func ofHealth(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
}

// since returns the end of the second that the API server stored, or seen if that is earlier or nothing was stored. So a taint or a
// binding never counts as older than its stamp, and a stamp in the future counts from when this process saw it. The result keeps
// the monotonic reading of seen: a later step of the wall clock does not move deadlines.
func since(stamp metav1.Time, seen time.Time) time.Time {
	if age := seen.Sub(stamp.Add(time.Second)); !stamp.IsZero() && age > 0 {
		return seen.Add(-age)
	}
	return seen
}

// boundAt is when the pod was bound to its node, as the API server knows it.
func boundAt(pod *caches.Pod) metav1.Time {
	if pod.Scheduled.Status == corev1.ConditionTrue {
		return pod.Scheduled.Since
	}
	return pod.CreationTimestamp // created on the node: nobody scheduled it
}

// limits are the moments at which a pod must have left its node; a zero time is no limit.
type limits struct {
	health time.Time // by the taints of the node's health
	others time.Time // by all other taints
}

// limitsOf says how long a pod with these tolerations, on the node since bound, may stay.
func limitsOf(taints []taint, tolerations []corev1.Toleration, bound time.Time) limits {
	var l limits
	for _, t := range taints {
		patience, limited := patience(t.Taint, tolerations)
		if !limited {
			continue
		}
		at := latest(t.since, bound).Add(patience)
		if ofHealth(t.Taint) {
			l.health = earliest(l.health, at)
		} else {
			l.others = earliest(l.others, at)
		}
	}
	return l
}

// longestPatience is what time.Duration can hold; longer is for ever.
const longestPatience = int64(math.MaxInt64 / time.Second)

// patience is how long the first toleration that matches a taint bears it, and whether that is limited at all.
func patience(t corev1.Taint, tolerations []corev1.Toleration) (time.Duration, bool) {
	for i := range tolerations {
		// Numeric comparison operators are an alpha feature; without them the logger is not used.
		if !tolerations[i].ToleratesTaint(klog.Logger{}, &t, false) {
			continue
		}
		seconds := tolerations[i].TolerationSeconds
		if seconds == nil || *seconds > longestPatience {
			return 0, false
		}
		return time.Duration(max(0, *seconds)) * time.Second, true
	}
	return 0, true
}

// verdict is what becomes of a pod.
type verdict int

const (
	stays  verdict = iota // no taint wants it to leave
	waits                 // it must leave at a later time
	holds                 // its time has come, but the taint is not yet trusted
	leaves                // now
)

// decision says what becomes of a pod, and when.
type decision struct {
	verdict verdict
	due     time.Time // its deadline; zero if it stays
	again   time.Time // when to decide anew, if it waits or holds
}

// decide judges a pod at now. The limit by the taints of health does not take effect before trusted.
func decide(l limits, trusted, now time.Time) decision {
	d := decision{due: earliest(l.health, l.others)}
	if d.due.IsZero() {
		return d
	}
	d.again = l.others
	if !l.health.IsZero() {
		d.again = earliest(l.others, latest(l.health, trusted))
	}
	switch {
	case d.due.After(now):
		d.verdict = waits
	case d.again.After(now):
		d.verdict = holds
	default:
		return decision{verdict: leaves, due: d.due}
	}
	return d
}

// earliest ignores zero times.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sameForPods reports whether two versions of a node differ in nothing that moves a deadline.
func sameForPods(a, b *corev1.Node) bool {
	return nodestatus.Ready(a) == nodestatus.Ready(b) &&
		equality.Semantic.DeepEqual(noExecute(a.Spec.Taints), noExecute(b.Spec.Taints))
}
