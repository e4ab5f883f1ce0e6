package namespace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/internal/worker"
)

const (
	pageSize = 500 // objects per list and per deletecollection

	typesAtOnce    = 8 // of one namespace
	removalsAtOnce = 4 // of one namespace: they are what costs etcd
	// requestsAtOnce is for all namespaces together. Most of them are lists that wait for a watch cache, up to 100 ms each: with 32 the
	// API server had little to do. At 64 it still has seats left for others of the same priority level, by default 98.
	requestsAtOnce = 64

	listTimeout   = 10 * time.Second
	removeTimeout = 60 * time.Second // how long the API server works on one request

	// passBudget is after which time a pass begins no further page, so that large collections do not keep small namespaces
	// from a worker. What is left is met by the next pass.
	passBudget = 30 * time.Second
)

// outcome is what one pass over one type has left behind.
type outcome struct {
	resource   resource
	remaining  int64               // objects
	finalizers map[string]int      // how many of them carry each finalizer
	examples   map[string][]string // by finalizer, or "" for objects without one: up to three names
	version    string              // resource version of the list this comes from
	unserved   bool                // the type could not be listed, so that nothing is known of it
	deleted    bool                // whether there were objects that nobody had deleted before
	err        error
}

// purger deletes and counts the content of one namespace during one pass.
type purger struct {
	client    metadata.Interface
	slots     *semaphore.Weighted // first come, first served, between all namespaces
	removals  chan struct{}
	silence   *silence
	clock     clock.PassiveClock
	namespace string
	until     time.Time // begin no further page
}

func (c *Controller) newPurger(namespace string, now time.Time) *purger {
	return &purger{
		client: c.deps.Metadata, slots: c.slots, removals: make(chan struct{}, removalsAtOnce), silence: c.silence,
		clock: c.deps.Clock, namespace: namespace, until: now.Add(passBudget),
	}
}

// errNotTried: another request to the same group version was not answered in time shortly before.
var errNotTried = errors.New("not tried, its API does not answer")

// purgeAll takes every type through a pass, several at a time, and returns their outcomes in the order of types. When an API takes
// requests and does not answer, its remaining types are left to later passes: waiting for each would take the time of all others. Which
// is tried then is left to chance, or one that never answers could stand before the others for ever.
func (p *purger) purgeAll(ctx context.Context, types []resource) []outcome {
	outcomes := make([]outcome, len(types))
	var group errgroup.Group
	group.SetLimit(typesAtOnce)
	for _, i := range rand.Perm(len(types)) {
		r := types[i]
		group.Go(func() error {
			if p.silence.of(r.GroupVersion()) {
				outcomes[i] = outcome{resource: r, err: fmt.Errorf("list %s: %w", r, errNotTried)}
				return nil
			}
			outcomes[i] = p.purge(ctx, r)
			// The core group has no server of its own that could be silent.
			if r.Group != "" && ctx.Err() == nil {
				p.silence.note(r.GroupVersion(), !errors.Is(outcomes[i].err, context.DeadlineExceeded))
			}
			return nil
		})
	}
	_ = group.Wait() // errors are part of the outcomes
	return outcomes
}

// purge deletes the objects of one type and reports what is left. If there are none, that is one request.
func (p *purger) purge(ctx context.Context, r resource) outcome {
	if !r.list {
		return p.purgeUnseen(ctx, r)
	}
	out, removed := p.walk(ctx, r, true)
	if removed && out.err == nil {
		out, _ = p.walk(ctx, r, false)
	}
	out.deleted = removed
	return out
}

// purgeUnseen deletes the objects of a type that cannot be listed.
func (p *purger) purgeUnseen(ctx context.Context, r resource) outcome {
	out := outcome{resource: r, unserved: true}
	if !r.deleteCollection {
		return out
	}
	err := p.removeCollection(ctx, r, metav1.ListOptions{})
	if err != nil && !unsupported(err) {
		out.err = fmt.Errorf("delete %s: %w", r, err)
	}
	return out
}

// walk lists the objects of a type page by page and counts them. If remove is set it also deletes each page unless all
// objects of the page are being deleted already, and reports whether it tried to: then the count is out of date.
//
// The pages of a walk follow each other by continue token, so that objects held by finalizers at the front do not hide
// those behind them, and deletecollection is given the same token and thus takes the same page.
func (p *purger) walk(ctx context.Context, r resource, remove bool) (out outcome, removed bool) {
	out = outcome{resource: r}
	var removals errgroup.Group
	removals.SetLimit(removalsAtOnce)
	defer func() {
		if err := removals.Wait(); err != nil && out.err == nil {
			out.err = fmt.Errorf("delete %s: %w", r, err)
		}
	}()
	next := ""
	for {
		token := next
		page, err := p.list(ctx, r, token)
		if err != nil {
			out.notListed(err, token)
			return out, removed
		}
		out.add(page.Items)
		out.version = page.ResourceVersion
		if remove && slices.ContainsFunc(page.Items, notDeleted) {
			removed = true
			removals.Go(func() error { return p.removePage(ctx, r, pageOf(page, token), page.Items) })
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

// notListed takes in the failure to list a page.
func (o *outcome) notListed(err error, token string) {
	switch {
	case unsupported(err):
		o.unserved = true
	case token != "" && apierrors.IsResourceExpired(err):
		o.remaining = max(o.remaining, 1) // the walk took longer than etcd keeps versions: the next one will see
	default:
		o.err = fmt.Errorf("list %s: %w", o.resource, err)
	}
}

func notDeleted(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }

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
func (o *outcome) add(items []metav1.PartialObjectMetadata) {
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

func (p *purger) list(ctx context.Context, r resource, token string) (*metav1.PartialObjectMetadataList, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer p.slots.Release(1)
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	// No resource version: the answer is as new as etcd.
	return p.client.Resource(r.GroupVersionResource).Namespace(p.namespace).
		List(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
}

// acquire waits for one of the slots for requests. Nobody gets one when the term is over.
func (p *purger) acquire(ctx context.Context) error {
	if worker.Draining(ctx) {
		return worker.ErrDraining
	}
	return p.slots.Acquire(ctx, 1)
}
