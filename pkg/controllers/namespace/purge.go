package namespace

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/conversion"
	"minikcm/pkg/controllers/internal/discovery"
	"minikcm/pkg/outcome"
)

const (
	typesAtOnce    = 8 // of one namespace
	removalsAtOnce = 4 // of one namespace: they are what costs etcd
	// requestsAtOnce is for all namespaces together. Most of them are lists that wait for a watch cache, up to 100 ms each: with 32 the
	// API server had little to do. At 64 it still has seats left for others of the same priority level, by default 98.
	requestsAtOnce = 64

	// passBudget is after which time a pass begins no further page and no further type, so that large collections and large APIs do not
	// keep small namespaces from a worker. What is left is met by the next pass.
	passBudget = 30 * time.Second
)

// outcome is what one pass over one type has left behind.
type typeResult struct {
	resource   discovery.Type
	remaining  int64               // objects
	finalizers map[string]int      // how many of them carry each finalizer
	examples   map[string][]string // by finalizer, or "" for objects without one: up to three names
	version    string              // resource version of the list this comes from
	unserved   bool                // the type could not be listed, so that nothing is known of it
	unlisted   bool                // because it has no list, as discovery or the answer says
	pending    bool                // the pass had no time for the type
	deleted    bool                // whether there were objects that nobody had deleted before
	listing    listing             // of the last walk
	err        error
}

// hidden reports whether the type was discovered as one that can be listed, and its list was answered as if it did not exist.
func (o typeResult) hidden() bool { return o.unserved && !o.unlisted }

// failure is what went wrong with one type.
type failure struct {
	doing string // "list pods"
	err   error
}

func (f *failure) Error() string { return f.doing + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func listFailed(r discovery.Type, err error) error   { return &failure{"list " + r.String(), err} }
func removeFailed(r discovery.Type, err error) error { return &failure{"delete " + r.String(), err} }

// forUsers is the text of an error for conditions and Events. Errors of connections name ports and streams, and an API that does not answer is
// tried now by this and now by that namespace, so each would be another text for the same thing; the log has them.
func forUsers(err error) string {
	var f *failure
	var transport *url.Error
	if errors.As(err, &f) && (errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNotTried)) {
		return f.doing + ": no answer from the API server"
	}
	return outcome.EventMessage(err)
}

// purger deletes and counts the content of one namespace during one pass.
type purger struct {
	client    metadata.Interface
	slots     *semaphore.Weighted // first come, first served, between all namespaces
	removals  chan struct{}
	silence   *silence
	strides   *strides
	patient   bool // may wait for types that need more than the first patience
	clock     clock.PassiveClock
	namespace string
	content   discovery.Answer // shows in which versions types are served; zero: in the preferred one only
	deleted   time.Time        // deletionTimestamp of the namespace
	until     time.Time        // begin no further page
	permit    func() error     // asked before each delete; nil: it is permitted
}

// newPurger returns a purger whose pass begins at now. The caller must end it.
func (c *Controller) newPurger(ns *corev1.Namespace, m *memory, now time.Time) *purger {
	p := &purger{
		client: c.deps.Metadata, slots: c.slots, removals: make(chan struct{}, removalsAtOnce), silence: c.silence, strides: m.strides,
		clock: c.deps.Clock, namespace: ns.Name, until: now.Add(passBudget),
	}
	if ns.DeletionTimestamp != nil {
		p.deleted = ns.DeletionTimestamp.Time
	}
	p.patient = m.strides.slow() && c.patient.TryAcquire(1)
	return p
}

func (c *Controller) end(p *purger) {
	if p.patient {
		c.patient.Release(1)
	}
}

// errNotTried: requests to the same group version were not answered in time shortly before, or enough others wait for answers as slow.
var errNotTried = errors.New("not tried, its API does not answer")

// purgeAll takes every type through a pass, several at a time, and returns their outcomes in the order of types. When an API takes
// requests and does not answer, its remaining types are left to later passes: waiting for each would take the time of all others. Which
// is tried then is left to chance, or one that never answers could stand before the others for ever.
func (p *purger) purgeAll(ctx context.Context, types []discovery.Type) []typeResult {
	outcomes := make([]typeResult, len(types))
	var group controller.Group
	group.SetLimit(typesAtOnce)
	for _, i := range rand.Perm(len(types)) {
		r := types[i]
		group.Go(func() error {
			if p.clock.Now().After(p.until) {
				outcomes[i] = typeResult{resource: r, pending: true}
				return nil
			}
			if p.silence.keeps(p.namespace, r.GroupVersion()) {
				outcomes[i] = typeResult{resource: r, err: listFailed(r, errNotTried)}
				return nil
			}
			outcomes[i] = p.purge(ctx, r)
			// The core group has no server of its own that could be silent.
			if err := outcomes[i].err; r.Group != "" && ctx.Err() == nil && !errors.Is(err, errNotTried) {
				p.silence.note(p.namespace, r.GroupVersion(), !errors.Is(err, context.DeadlineExceeded))
			}
			return nil
		})
	}
	_ = group.Wait() // errors are part of the outcomes
	return outcomes
}

// purge deletes the objects of one type and reports what is left. If there are none, that is one request. If they cannot be converted to the
// preferred version, another shows the same ones: a list that cannot convert all of them is an error.
func (p *purger) purge(ctx context.Context, r discovery.Type) (out typeResult) {
	err := conversion.Try(r.GroupVersionResource, p.content.Versions(r.GroupResource()), func(version schema.GroupVersionResource) error {
		in := r
		in.GroupVersionResource = version
		out = p.purgeIn(ctx, in)
		return out.err
	})
	out.resource, out.err = r, err
	return out
}

// purgeIn is purge in one version.
func (p *purger) purgeIn(ctx context.Context, r discovery.Type) typeResult {
	if !r.List {
		return p.purgeUnseen(ctx, r)
	}
	if !p.patient && p.strides.list(r, false).patience > minPatience {
		return typeResult{resource: r, err: listFailed(r, errNotTried)}
	}
	out, removed := p.walk(ctx, r, true)
	if out.unlisted {
		return p.purgeUnseen(ctx, r)
	}
	if walked := out; removed && out.err == nil {
		out = p.lookAgain(ctx, r, walked)
		out.deleted = walked.deleted
	}
	return out
}

// lookAgain counts what is left of the objects of a type after a walk that deleted them. A list as new as that of the walk will do if nothing in
// it was left undeleted, and most do: for the newest one the server may wait, see pageOf.
func (p *purger) lookAgain(ctx context.Context, r discovery.Type, walked typeResult) typeResult {
	undone := removable
	if r.GroupResource() == discovery.Pods.GroupResource() {
		undone = notDeleted // in its grace period a pod keeps the finalizers of the garbage collector, however often it is deleted
	}
	asked := p.strides.list(r, false)
	if walked.remaining <= asked.page && isVersion(walked.version) {
		page, err := p.list(ctx, r, asked, metav1.ListOptions{ResourceVersion: walked.version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		out := typeResult{resource: r, listing: walked.listing} // what it shows may be as old
		switch {
		case err == nil && page.Continue == "" && !slices.ContainsFunc(page.Items, undone):
			out.version = page.ResourceVersion
			out.add(page.Items)
			return out
		case err != nil && !refused(err):
			out.notListed(err, "")
			return out
		}
	}
	out, _ := p.walk(ctx, r, false)
	return out
}

// purgeUnseen deletes the objects of a type that cannot be listed.
func (p *purger) purgeUnseen(ctx context.Context, r discovery.Type) typeResult {
	out := typeResult{resource: r, unserved: true, unlisted: true, listing: listing{sent: p.clock.Now()}}
	if !r.DeleteCollection {
		return out
	}
	err := p.removeCollection(ctx, r, metav1.ListOptions{})
	if err != nil && !unsupported(err) {
		out.err = removeFailed(r, err)
	}
	return out
}

// walk lists the objects of a type page by page and counts them. If remove is set it also deletes each page that has
// removable objects, and reports whether it tried to: then the count is out of date.
//
// The pages of a walk follow each other by continue token, so that objects held by finalizers at the front do not hide
// those behind them, and deletecollection is given the same token and thus takes the same page.
func (p *purger) walk(ctx context.Context, r discovery.Type, remove bool) (out typeResult, removed bool) {
	out = typeResult{resource: r, listing: listing{sent: p.clock.Now()}}
	var removals controller.Group
	removals.SetLimit(removalsAtOnce)
	defer func() {
		if err := removals.Wait(); err != nil && out.err == nil {
			out.err = removeFailed(r, err)
		}
	}()
	next := ""
	for {
		token, asked := next, p.strides.list(r, remove)
		page, err := p.list(ctx, r, asked, metav1.ListOptions{Continue: token})
		if err != nil {
			out.notListed(err, token)
			out.unlisted = remove && token == "" && (apierrors.IsMethodNotSupported(err) || p.lacksStorage(r, err))
			return out, removed
		}
		out.add(page.Items)
		out.version = page.ResourceVersion
		if remove && slices.ContainsFunc(page.Items, removable) {
			removed, out.deleted = true, out.deleted || slices.ContainsFunc(page.Items, notDeleted)
			removals.Go(func() error { return p.removePage(ctx, r, pageOf(page, token, asked.page), page.Items) })
		}
		next = page.Continue
		if next != "" && p.clock.Now().After(p.until) {
			out.remaining += max(following(page), 1)
			next = ""
		}
		if next == "" {
			return out, removed
		}
	}
}

// storagePatience is how long a namespace waits for an extension API server that has no storage of a type.
const storagePatience = 2 * time.Minute

// lacksStorage reports whether an extension API server has no storage of a type for the namespace. A 404 without a Status only
// means that the path is not known.
func (p *purger) lacksStorage(r discovery.Type, err error) bool {
	return r.Group != "" && apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		p.clock.Since(p.deleted) > storagePatience
}

// notListed takes in the failure to list a page.
func (o *typeResult) notListed(err error, token string) {
	switch {
	case unsupported(err):
		o.unserved = true
	case token != "" && apierrors.IsResourceExpired(err):
		o.remaining = max(o.remaining, 1) // the walk took longer than etcd keeps versions: the next one will see
	default:
		o.err = listFailed(o.resource, err)
	}
}

func notDeleted(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }

// removable reports whether deleting an object does something: if it was deleted before, the API server removes the finalizers of the garbage
// collector when it is deleted again in the background.
func removable(o metav1.PartialObjectMetadata) bool {
	return notDeleted(o) || slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}

// following is how many objects follow those of the page, zero if the server does not say.
func following(page *metav1.PartialObjectMetadataList) int64 {
	if page.RemainingItemCount == nil {
		return 0
	}
	return *page.RemainingItemCount
}

// examplesShown is how many objects are named for each finalizer.
const examplesShown = 3

// add counts the objects of a page.
func (o *typeResult) add(items []metav1.PartialObjectMetadata) {
	if len(items) > 0 && o.examples == nil {
		o.finalizers, o.examples = map[string]int{}, map[string][]string{}
	}
	for _, item := range items {
		o.remaining++
		holders := item.Finalizers
		if len(holders) == 0 {
			holders = []string{""}
		}
		for _, f := range holders {
			if f != "" {
				o.finalizers[f]++
			}
			if names := o.examples[f]; len(names) < examplesShown {
				o.examples[f] = append(names, item.Name)
			}
		}
	}
}

// list asks for one page. Without a version in from it is as new as etcd.
func (p *purger) list(ctx context.Context, r discovery.Type, asked stride, from metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer p.slots.Release(1)
	bounded, cancel := context.WithTimeout(ctx, asked.patience)
	defer cancel()
	begin := p.clock.Now()
	from.Limit = asked.page
	page, err := p.client.Resource(r.GroupVersionResource).Namespace(p.namespace).List(bounded, from)
	if ctx.Err() == nil {
		p.strides.listed(r, asked, p.clock.Since(begin), err)
	}
	return page, err
}

// acquire waits for one of the slots for requests. Nobody gets one when the term is over.
func (p *purger) acquire(ctx context.Context) error {
	if controller.Draining(ctx) {
		return controller.ErrDraining
	}
	return p.slots.Acquire(ctx, 1)
}
