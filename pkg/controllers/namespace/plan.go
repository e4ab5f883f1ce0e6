package namespace

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/internal/timing"
	"minikcm/pkg/controllers/internal/discovery"
)

// minGrace is the time that a create needs from admission to etcd if nothing holds up the create.
const minGrace = 100 * time.Millisecond

// discoveryNotBefore returns the earliest time at which a sufficient discovery may be sent in a sync that began
// at now.
func discoveryNotBefore(seen, graceEnd, hiddenAt, now time.Time) time.Time {
	notBefore := seen
	if !now.Before(graceEnd) {
		notBefore = graceEnd
	}
	return timing.Later(notBefore, hiddenAt)
}

// podsGone reports whether a pod list proves that no pods are left. The caller has checked that an empty list was sent
// after the grace period. A failed list proves nothing: kube-controller-manager deletes the other types even then.
func podsGone(pods typeResult, known discovery.Result) bool {
	unknown := pods.unserved && (!known.Complete() || known.Has(discovery.Pods.GroupResource()))
	return pods.err == nil && pods.remaining == 0 && !unknown
}

// report is the result of one pass.
type report struct {
	content    discovery.Result
	results    []typeResult // pods first
	finalizers []string     // see remainingFinalizers; only if the content is gone
	rejection  error        // of the finalization
}

// errs returns the errors of all types.
func (r report) errs() []error {
	var errs []error
	for _, result := range r.results {
		if result.err != nil {
			errs = append(errs, result.err)
		}
	}
	return errs
}

// canceled returns an error if requests were canceled.
func (r report) canceled() error {
	for _, err := range append(r.errs(), r.content.Err) {
		if errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// isBlocked reports whether objects remain, requests failed, or types are unknown.
func (r report) isBlocked() bool {
	remains := func(o typeResult) bool { return o.remaining > 0 }
	return len(r.errs()) > 0 || slices.ContainsFunc(r.results, remains) || !r.content.Complete()
}

// nextSync returns the time until the next sync. waited is the time since the deletion was seen. unfinished is the
// number of terminating namespaces that this term has synced and not finished. If there are many, a longer time keeps
// all syncs together, of three or four requests each, near 100 requests per second. kube-controller-manager syncs every
// 8 s, but at most six namespaces per second.
func nextSync(waited time.Duration, unfinished int) time.Duration {
	longest := 8 * time.Second
	if waited > 10*time.Minute {
		longest = 30 * time.Second
	}
	crowded := min(time.Duration(unfinished-40)*40*time.Millisecond, 30*time.Second)
	return max(min(max(waited/4, 300*time.Millisecond), longest), crowded)
}

func hasOurFinalizer(ns *corev1.Namespace) bool {
	return slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// otherFinalizers returns the spec.finalizers except ours, sorted and without duplicates.
func otherFinalizers(ns *corev1.Namespace) []corev1.FinalizerName {
	ours := func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes }
	others := slices.DeleteFunc(slices.Clone(ns.Spec.Finalizers), ours)
	slices.Sort(others)
	return slices.Compact(others)
}

// remainingFinalizers returns the finalizers that keep the namespace without ours, from spec and metadata.
func remainingFinalizers(ns *corev1.Namespace) []string {
	var names []string
	for _, f := range otherFinalizers(ns) {
		names = append(names, string(f))
	}
	return append(names, ns.Finalizers...)
}
