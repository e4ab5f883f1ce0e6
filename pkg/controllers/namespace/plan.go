package namespace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/controllers/internal/discovery"
)

const (
	// minGrace is the least grace. Creates that passed admission before the deletion need it to reach etcd, even if there is only one
	// API server.
	minGrace = 100 * time.Millisecond
)

// podGate says what the outcome of the pods means for the other types.
type podGate string

const (
	podsGone   podGate = "gone"   // the others' turn
	podsEarly  podGate = "early"  // the list was empty, but sent before the grace was over
	podsLeft   podGate = "left"   // some remain
	podsFailed podGate = "failed" // the list failed, or cannot be trusted
)

// judgePods decides whether the outcome of the pods, whose list was sent at now, proves them gone. Without that proof the other types wait;
// upstream deletes them when the list fails.
func judgePods(pods typeResult, now, gate time.Time, c discovery.Answer) podGate {
	switch {
	case pods.err != nil:
		return podsFailed
	case pods.remaining > 0:
		return podsLeft
	case now.Before(gate):
		return podsEarly
	case pods.unserved && (!c.Complete() || c.Has(discovery.Pods.GroupResource())):
		return podsFailed // an API without pods must say so in its discovery, too
	default:
		return podsGone
	}
}

// verdict is what follows from the outcomes of a pass.
type verdict string

const (
	failed       verdict = "failed"       // requests failed: try again with back-off
	waiting      verdict = "waiting"      // objects remain
	unfinished   verdict = "unfinished"   // the time of the pass was over before all types were looked at
	undiscovered verdict = "undiscovered" // all that could be seen is gone, but some of the API cannot be seen
	unproven     verdict = "unproven"     // each type was seen empty, but some too long ago
	empty        verdict = "empty"        // nothing is left
)

// listing is when a type was listed.
type listing struct {
	sent time.Time // the first page
	// lasting: no create that was admitted before the deletion can have come later. So what a pass has seen that was cut counts in the next, however many
	// namespaces wait for a worker in between.
	lasting bool
}

// longestCreate is how long after its admission a create can reach etcd: kube-apiserver v1.37 ends it then, by default (--request-timeout).
const longestCreate = time.Minute

// span is how old the first list of a proof may be when the last is answered. It does not grow with the time that the lists take: lists that are
// sent together wait for each other, so their sum says nothing, and those of a large API last once creates are over.
const span = 30 * time.Second

// expired reports whether a list proves nothing any more at now.
func (l listing) expired(now time.Time) bool {
	return !l.lasting && now.Sub(l.sent) > span
}

// proven reports whether every type was seen empty within one span that ends now, or after all creates.
func proven(types []discovery.Type, emptyTypes map[discovery.Type]listing, now time.Time) bool {
	return !slices.ContainsFunc(types, func(r discovery.Type) bool {
		s, ok := emptyTypes[r]
		return !ok || s.expired(now)
	})
}

// judge decides what the outcomes of a pass mean. proven says that every type was seen empty within one span, those outcomes included.
func judge(r report, proven bool) verdict {
	switch {
	case len(r.errs()) > 0:
		return failed
	case r.remaining() > 0:
		return waiting
	case r.pending() > 0:
		return unfinished
	case !r.content.Complete():
		return undiscovered
	case !proven:
		return unproven
	default:
		return empty
	}
}

// Pauses between syncs of a namespace whose content remains, if no watch reports a change before.
const (
	minRecheck = 500 * time.Millisecond
	maxRecheck = 15 * time.Second
	// longRecheck is the pause when nothing has moved for 40 minutes: a thousand namespaces that are stuck for good are to cost little.
	longRecheck = 2 * time.Minute
)

// wait is the back-off of one namespace.
type wait struct {
	scene string        // what the last pass found
	since time.Time     // when it was found first
	pause time.Duration // that followed the last pass; zero before the first
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

// restAfter is the least pause after a pass that took so long and had nothing to delete. A collection whose finalizers somebody removes one by
// one changes all the time, and each pass lists it whole.
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
