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
	// clockSkew is how far the API server's clock, which made the deletionTimestamp, may be ahead of ours.
	clockSkew = 30 * time.Second
)

// gateAt is when types other than pods may be deleted. seen is when this process saw the deletion, deleted the
// deletionTimestamp. A deletion that is long past by any clock needs no second grace after a restart.
func gateAt(seen, deleted time.Time, grace time.Duration) time.Time {
	grace = max(grace, settle)
	gate := seen.Add(grace)
	if past := deleted.Add(grace + clockSkew); past.Before(gate) {
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
	undiscovered verdict = "undiscovered" // all that could be seen is gone, but some of the API cannot be seen
	unproven     verdict = "unproven"     // each type was seen empty, but some too long ago
	empty        verdict = "empty"        // nothing is left
)

// passSpan is how far apart the lists of one pass may be. A pass over large collections takes as long as that, and with it a
// pass in which requests failed is completed by repeating those, not by listing everything again until all go well at once.
const passSpan = passBudget

// proven reports whether every type was seen empty in one pass that ends now: no longer than passSpan ago, or by the look that began at
// begin, however long that took. An API with thousands of types, or a slow one, takes its time.
func proven(types []resource, settled map[resource]time.Time, begin, now time.Time) bool {
	return !slices.ContainsFunc(types, func(r resource) bool {
		seen, ok := settled[r]
		return !ok || seen.Before(begin) && now.Sub(seen) > passSpan
	})
}

// judge decides what a look at types means. proven says that every type was seen empty in one pass, this look included.
func judge(r report, proven bool) verdict {
	switch {
	case len(r.errs()) > 0:
		return failed
	case r.remaining() > 0:
		return waiting
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
