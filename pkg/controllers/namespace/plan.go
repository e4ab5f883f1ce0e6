package namespace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// settle is the least time between the first sight of a deletion and the look that may end it: creates that passed
	// admission before the deletion need it to reach etcd, even if there is only one API server.
	settle = 100 * time.Millisecond
	// heldUp takes the place of a grace that is shorter where creates may be held up between the check that their namespace is there and etcd.
	heldUp = 1500 * time.Millisecond
	// clockSkew is how far the API server's clock, which made the deletionTimestamp, may be ahead of ours.
	clockSkew = 30 * time.Second
)

// gateAt is when types other than pods may be deleted. seen is the first sight of the deletion, deleted the deletionTimestamp. A deletion that
// was not watched, and is long past by any clock, needs no second grace after a restart.
func gateAt(seen sighting, deleted time.Time, grace time.Duration) time.Time {
	grace = max(grace, settle)
	gate := seen.at.Add(grace)
	if past := deleted.Add(grace + clockSkew); !seen.watched && past.Before(gate) {
		return past
	}
	return gate
}

// podGate says what a look at the pods means for the other types.
type podGate string

const (
	podsGone   podGate = "gone"   // the others' turn
	podsEarly  podGate = "early"  // none seen, but the look began before the grace was over
	podsLeft   podGate = "left"   // some remain
	podsFailed podGate = "failed" // the look failed, or cannot be trusted
)

// judgePods decides whether the pods of a namespace are proven gone by the outcome of a look that began at now. Whatever is
// not such a proof keeps the others waiting: upstream lets them go when the look fails.
func judgePods(pods outcome, now, gate time.Time, c content) podGate {
	switch {
	case pods.err != nil:
		return podsFailed
	case pods.remaining > 0:
		return podsLeft
	case now.Before(gate):
		return podsEarly
	case pods.unserved && (!c.complete() || c.has(podResource)):
		return podsFailed // an API without pods must say so in its discovery, too
	default:
		return podsGone
	}
}

// verdict is what follows from a look at the types other than pods.
type verdict string

const (
	failed       verdict = "failed"       // requests failed: try again with back-off
	waiting      verdict = "waiting"      // objects remain
	unfinished   verdict = "unfinished"   // the time of the pass was over before all types were looked at
	undiscovered verdict = "undiscovered" // all that could be seen is gone, but some of the API cannot be seen
	unproven     verdict = "unproven"     // each type was seen empty, but some too long ago
	empty        verdict = "empty"        // nothing is left
)

// sight is a type seen empty.
type sight struct {
	sent time.Time     // when the list was sent
	took time.Duration // until it was answered
}

// minSpan is how far apart the lists of one proof may be even if they take no time.
const minSpan = 30 * time.Second

// spanOf is how far apart the lists that prove types empty may be: as long as they take when they are sent one after the other, as kube-controller-manager
// sends them. An API with thousands of types, or a slow one, takes its time, and a list that failed is repeated without all others.
func spanOf(settled map[resource]sight) time.Duration {
	var sum time.Duration
	for _, s := range settled {
		sum += s.took
	}
	return max(sum, minSpan)
}

// proven reports whether every type was seen empty in one pass that ends now.
func proven(types []resource, settled map[resource]sight, now time.Time) bool {
	span := spanOf(settled)
	return !slices.ContainsFunc(types, func(r resource) bool {
		s, ok := settled[r]
		return !ok || now.Sub(s.sent) > span
	})
}

// judge decides what a look at types means. proven says that every type was seen empty in one pass, this look included.
func judge(r report, proven bool) verdict {
	switch {
	case len(r.errs()) > 0:
		return failed
	case r.remaining() > 0:
		return waiting
	case r.pending() > 0:
		return unfinished
	case !r.content.complete():
		return undiscovered
	case !proven:
		return unproven
	default:
		return empty
	}
}

// Pauses between looks at a namespace whose content remains, if no watch reports a change before.
const (
	minRecheck = 500 * time.Millisecond
	maxRecheck = 15 * time.Second
	// longRecheck is the pause when nothing has moved for 40 minutes: a thousand namespaces that are stuck for good are to cost little.
	longRecheck = 2 * time.Minute
)

// wait is the back-off of one namespace.
type wait struct {
	scene string        // what the last look found
	since time.Time     // when it was found first
	pause time.Duration // that followed the last look; zero before the first
}

// next doubles the pause while the scene stays the same, and starts over when it changes. Beyond maxRecheck the pause adds a
// twentieth at most to the time that the scene has stood.
func (w wait) next(scene string, now time.Time) wait {
	if w.pause == 0 || scene != w.scene {
		return wait{scene: scene, since: now, pause: minRecheck}
	}
	limit := min(max(now.Sub(w.since)/20, maxRecheck), longRecheck)
	return wait{scene: scene, since: w.since, pause: min(2*w.pause, limit)}
}

// restAfter is the least pause after a look that took so long and had nothing to delete. Those who remove finalizers from a large collection one
// by one change it all the time, and each look lists it whole.
func restAfter(took time.Duration) time.Duration { return min(4*took, longRecheck) }

// ourFinalizer reports whether finalizing the namespace is still ours to do.
func ourFinalizer(ns *corev1.Namespace) bool {
	return slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// otherFinalizers are the spec.finalizers that are not ours, sorted, each once.
func otherFinalizers(ns *corev1.Namespace) []corev1.FinalizerName {
	others := []corev1.FinalizerName{}
	for _, f := range ns.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			others = append(others, f)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// heldBy are the finalizers that keep the namespace when ours is gone: those of its spec, then those of its metadata.
func heldBy(ns *corev1.Namespace) []string {
	var names []string
	for _, f := range otherFinalizers(ns) {
		names = append(names, string(f))
	}
	return append(names, ns.Finalizers...)
}

// goesWithUs reports whether the namespace disappears with our finalizer, so that nobody will read its conditions.
func goesWithUs(ns *corev1.Namespace) bool { return ourFinalizer(ns) && len(heldBy(ns)) == 0 }
