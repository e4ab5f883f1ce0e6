package namespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/pkg/controllers/internal/discovery"
)

// Values of the cause label, and why a namespace is not gone yet.
const (
	causePods       = "pods"       // pods remain, with or without finalizers
	causeFinalizers = "finalizers" // objects other than pods are held by finalizers
	causeContent    = "content"    // objects other than pods remain although nothing holds them
	causeDiscovery  = "discovery"  // part of the API cannot be seen
	causeError      = "error"      // requests fail
	causeGrace      = "grace"      // nothing is known to remain, but the grace is not over
	causeNamespace  = "namespace"  // its content is gone, it has finalizers that are not ours; in the condition only, not a label
)

// blocker says why a namespace is not gone yet.
type blocker struct {
	causes []string
	// identity is the same as long as the same types, finalizers, APIServices and kinds of errors are to blame, whatever the
	// counts.
	identity string
	text     string // for people
}

// reason is one part of a blocker.
type reason struct{ cause, identity, text string }

// reasonsShown is how many parts of a blocker are spelled out: a broken API server can be to blame for thousands of types.
const reasonsShown = 20

func blockerOf(r report) blocker {
	var reasons []reason
	for _, o := range r.outcomes {
		reasons = append(reasons, reasonsOf(o)...)
	}
	for _, f := range r.content.Failing {
		reasons = append(reasons, reason{causeDiscovery, f.Service(), fmt.Sprintf("APIService %s cannot be discovered: %v", f.Service(), f.Err)})
	}
	if len(r.content.Failing) == 0 && r.content.Err != nil {
		reasons = append(reasons, reason{causeDiscovery, "discovery", fmt.Sprintf("discovery fails: %v", r.content.Err)})
	}
	if r.content.ParseErr != nil {
		reasons = append(reasons, reason{causeDiscovery, "parsing", r.content.ParseErr.Error()})
	}
	for _, f := range r.finalizers {
		reasons = append(reasons, reason{causeNamespace, f, "the namespace itself is held by its finalizer " + f})
	}
	slices.SortStableFunc(reasons, func(a, b reason) int { return strings.Compare(a.identity, b.identity) })
	b := blocker{}
	var identities, texts []string
	for _, x := range reasons {
		identities, texts = append(identities, x.cause+" "+x.identity), append(texts, x.text)
		if !slices.Contains(b.causes, x.cause) {
			b.causes = append(b.causes, x.cause)
		}
	}
	if more := len(texts) - reasonsShown; more > 0 {
		texts = append(texts[:reasonsShown], fmt.Sprintf("and %d more", more))
	}
	if unseen := unseenTypes(r); unseen != "" && len(texts) > 0 {
		texts = append(texts, "types that cannot be listed were not looked at: "+unseen)
	}
	b.identity, b.text = strings.Join(identities, "; "), strings.Join(texts, "; ")
	return b
}

// reasonsOf explains one type: each finalizer with what it holds, then objects that nothing holds, then the error.
func reasonsOf(o typeResult) []reason {
	var reasons []reason
	pods := o.resource.GroupResource() == discovery.Pods.GroupResource()
	for f, n := range o.finalizers {
		cause := causeFinalizers
		if pods {
			cause = causePods
		}
		text := fmt.Sprintf("%d %s held by finalizer %s (%s)", n, o.resource, f, names(o.examples[f], int64(n)))
		reasons = append(reasons, reason{cause, o.resource.String() + " " + f, text})
	}
	if free, ok := o.examples[""]; ok {
		cause := causeContent
		if pods {
			cause = causePods
		}
		text := fmt.Sprintf("%d %s remaining (%s)", o.remaining, o.resource, names(free, o.remaining))
		reasons = append(reasons, reason{cause, o.resource.String(), text})
	}
	if o.err != nil {
		kind := cmp.Or(string(apierrors.ReasonForError(o.err)), "request failed")
		reasons = append(reasons, reason{causeError, o.resource.String() + " " + kind, forUsers(o.err)})
	}
	return reasons
}

// names lists examples of n objects.
func names(examples []string, n int64) string {
	text := strings.Join(examples, ", ")
	if n > int64(len(examples)) {
		text += ", …"
	}
	return text
}

func unseenTypes(r report) string {
	var unseen []string
	for _, o := range r.outcomes {
		if o.unlisted {
			unseen = append(unseen, o.resource.String())
		}
	}
	return strings.Join(unseen, ", ")
}

const (
	// noticeAfter is how long a blocker must stand before an Event tells of it: most go by themselves sooner.
	noticeAfter = 30 * time.Second
	// noticeAgain repeats the Event while nothing changes. The API server drops events after an hour by default.
	noticeAgain = 10 * time.Minute
)

// notice is what has been said of a namespace's blocker.
type notice struct {
	identity string
	since    time.Time // when the blocker was first seen
	said     string    // identity in the last Event, empty before the first
	saidAt   time.Time
}

// next takes in the blocker found at now and decides whether an Event is due. The first waits for noticeAfter. When the blocker
// changes after that, the second pass that finds the new one says so.
func (n notice) next(identity string, now time.Time) (notice, bool) {
	if identity != n.identity {
		n.identity, n.since = identity, now
	}
	switch {
	case n.said == "" && now.Sub(n.since) < noticeAfter:
		return n, false
	case n.said != "" && n.said != identity && n.since.Equal(now):
		return n, false
	case n.said == identity && now.Sub(n.saidAt) < noticeAgain:
		return n, false
	}
	n.said, n.saidAt = identity, now
	return n, true
}

// due is how long until an Event may be due at the earliest, if nothing changes.
func (n notice) due(now time.Time) time.Duration {
	if n.said == "" {
		return n.since.Add(noticeAfter).Sub(now)
	}
	return n.saidAt.Add(noticeAgain).Sub(now)
}
