package namespace

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	pageSize    = int64(500)       // objects per request at most
	minTimeout  = 10 * time.Second // of a request
	maxTimeout  = time.Minute      // kube-apiserver v1.37 ends requests then, by default (--request-timeout)
	maxTimeouts = 3                // after which a page has one object
	typesAtOnce = 8                // of one namespace
	// requestsAtOnce is for all namespaces together. Most requests are lists that wait up to 100 ms for a watch
	// cache: with 32 the API server had little to do. By default a priority level has 98 seats for such
	// requests.
	requestsAtOnce = 64
	slotTimeout    = 25 * time.Second // with the wait for a discovery less than two minutes
	// storageTimeout bounds the wait for an extension API server that has no storage of a type.
	storageTimeout = 2 * time.Minute
	// maxExamples is the number of objects named for each finalizer.
	maxExamples = 3
)

var (
	errHidden  = errors.New("the API server shows the type in its discovery and does not list it")
	errSkipped = errors.New("skipped, the API does not respond")
)

// typeResult is the result of one pass over one type.
type typeResult struct {
	resource   discovery.Type
	remaining  int64               // objects
	finalizers map[string]int      // number of objects by finalizer
	examples   map[string][]string // object names by finalizer, by "" for objects without finalizers
	version    string              // resource version of the list
	unserved   bool                // the list was impossible or its response was 404 or 405
	unlisted   bool                // the type has no list
	timedOut   bool                // a request timed out
	err        error
}

// typeError is the failure of one operation on a type.
type typeError struct {
	operation string
	err       error
}

func (e *typeError) Error() string { return e.operation + ": " + e.err.Error() }
func (e *typeError) Unwrap() error { return e.err }

func listFailed(r discovery.Type, err error) error   { return &typeError{"list " + r.String(), err} }
func removeFailed(r discovery.Type, err error) error { return &typeError{"delete " + r.String(), err} }

// conditionText returns the text of an error for conditions, or an empty text without an error. Texts of connection
// errors have ports, so that each text would cause another write.
func conditionText(err error) string {
	if err == nil {
		return ""
	}
	var failed *typeError
	var transport *url.Error
	if errors.As(err, &failed) && (errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSkipped)) {
		return failed.operation + ": API server did not respond"
	}
	return outcome.EventMessage(err)
}

// unresponsive holds group versions, except the core group's, that time out. With many terminating namespaces,
// requests to such a group version would otherwise occupy all workers.
type unresponsive struct {
	clock  clock.PassiveClock
	lock   sync.Mutex
	pauses map[schema.GroupVersion]apiPause
}

// apiPause is a pause after a timeout. The cause may be one large namespace, so the pause holds for that namespace
// only until another namespace has a timeout.
type apiPause struct {
	until     time.Time
	namespace string // empty for all
}

// skip reports whether to send no requests to the group version. Every ten seconds one request is sent.
func (u *unresponsive) skip(gv schema.GroupVersion, namespace string) bool {
	u.lock.Lock()
	defer u.lock.Unlock()
	pause, ok := u.pauses[gv]
	if !ok || pause.namespace != "" && pause.namespace != namespace {
		return false
	}
	if u.clock.Now().Before(pause.until) {
		return true
	}
	u.pauses[gv] = apiPause{u.clock.Now().Add(minTimeout), pause.namespace}
	return false
}

func (u *unresponsive) record(gv schema.GroupVersion, namespace string, timedOut bool) {
	u.lock.Lock()
	defer u.lock.Unlock()
	if !timedOut {
		delete(u.pauses, gv)
		return
	}
	if before, ok := u.pauses[gv]; ok && before.namespace != namespace {
		namespace = ""
	}
	u.pauses[gv] = apiPause{u.clock.Now().Add(minTimeout), namespace}
}

// purger deletes and counts the content of one namespace in one sync.
type purger struct {
	*Controller
	namespace *corev1.Namespace
	seen      time.Time // first sight of the deletion
	timeouts  map[schema.GroupResource]int
	known     discovery.Result // shows the versions of types
	noSlot    atomic.Bool      // a request got no slot: the sync sends no more
}

// purgeAll deletes the objects of all types, several types at a time, and returns the results in the order of
// types. The types start in random order, lest types that time out always come before the same others.
func (p *purger) purgeAll(ctx context.Context, types []discovery.Type) []typeResult {
	results := make([]typeResult, len(types))
	var group controller.Group
	group.SetLimit(typesAtOnce)
	for _, i := range rand.Perm(len(types)) {
		r := types[i]
		group.Go(func() error {
			if p.unresponsive.skip(r.GroupVersion(), p.namespace.Name) {
				results[i] = typeResult{resource: r, err: listFailed(r, errSkipped)}
				return nil
			}
			results[i] = p.purge(ctx, r)
			if results[i].unserved && !results[i].unlisted {
				results[i].err = listFailed(r, errHidden)
			}
			// The core group has no server of its own.
			if r.Group != "" && r.List && ctx.Err() == nil && !errors.Is(results[i].err, errNoSlot) {
				p.unresponsive.record(r.GroupVersion(), p.namespace.Name, errors.Is(results[i].err, context.DeadlineExceeded))
			}
			return nil
		})
	}
	_ = group.Wait() // the results have the errors
	return results
}

// purge deletes the objects of one type and counts the remaining ones. An empty type costs one list. If a
// conversion webhook fails, purge tries the other versions: a list that cannot convert all objects fails.
func (p *purger) purge(ctx context.Context, r discovery.Type) (out typeResult) {
	err := conversion.SendInAnyVersion(r.GroupVersionResource, p.known.Versions(r.GroupResource()), func(version schema.GroupVersionResource) error {
		in := r
		in.GroupVersionResource = version
		out = p.purgeVersion(ctx, in)
		return out.err
	})
	out.resource, out.err = r, err
	return out
}

func (p *purger) purgeVersion(ctx context.Context, r discovery.Type) typeResult {
	out, removed := typeResult{unserved: true, unlisted: true}, false
	if r.List {
		out, removed = p.walk(ctx, r, true)
	}
	switch {
	case out.unlisted && r.DeleteCollection:
		if err := p.removeCollection(ctx, r, metav1.ListOptions{}); err != nil && !isUnsupported(err) {
			out.err = removeFailed(r, err)
		}
	case removed && out.err == nil:
		left := p.listRemaining(ctx, r, out)
		left.timedOut = left.timedOut || out.timedOut
		return left
	}
	return out
}

// listRemaining counts the objects of a type after a walk that deleted objects. First the list may be as old as
// that of the walk: the server may have to wait for a newer version, see pageOf. If that list fails, or if objects
// without a DELETE remain, a walk follows.
func (p *purger) listRemaining(ctx context.Context, r discovery.Type, walked typeResult) typeResult {
	undone := isRemovable
	if r.GroupResource() == discovery.Pods.GroupResource() {
		undone = isNotDeleted // within its grace period a pod keeps the finalizers of the garbage collector
	}
	if walked.remaining <= p.pageSize(r) && isVersion(walked.version) {
		out := typeResult{resource: r}
		page, err := p.list(ctx, r, metav1.ListOptions{ResourceVersion: walked.version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		if err == nil && page.Continue == "" && !slices.ContainsFunc(page.Items, undone) {
			out.add(page.Items)
			return out
		}
	}
	out, _ := p.walk(ctx, r, false)
	return out
}

// walk lists and counts the objects of a type page by page. With remove set, walk also deletes each page that
// has removable objects, and reports whether there were any. The pages follow each other by continue token, so
// that objects with finalizers do not hide later objects.
func (p *purger) walk(ctx context.Context, r discovery.Type, remove bool) (out typeResult, removed bool) {
	out.resource = r
	for token := ""; ; {
		page, err := p.list(ctx, r, metav1.ListOptions{Continue: token})
		if err != nil {
			p.recordFailure(&out, err, token)
			out.unlisted = remove && token == "" && (apierrors.IsMethodNotSupported(err) || p.lacksStorage(r, err))
			return out, removed
		}
		out.add(page.Items)
		out.version = page.ResourceVersion
		if remove && slices.ContainsFunc(page.Items, isRemovable) {
			removed = true
			err := p.removePage(ctx, r, pageOf(page, token, p.pageSize(r)), page.Items)
			if errors.Is(err, errTooLong) {
				out.timedOut = true
				if p.pageSize(r) > 1 {
					return out, true // not an error: the next pass deletes smaller pages
				}
			}
			if err != nil && out.err == nil {
				out.err = removeFailed(r, err)
			}
			if err != nil && !isRejected(err) {
				return out, true
			}
		}
		if token = page.Continue; token == "" {
			return out, removed
		}
	}
}

// recordFailure adds the failure to list a page to the result.
func (p *purger) recordFailure(out *typeResult, err error, token string) {
	switch {
	case isUnsupported(err):
		out.unserved = true
	case token != "" && apierrors.IsResourceExpired(err):
		out.remaining = max(out.remaining, 1) // the walk took too long: the next pass continues
	default:
		out.timedOut = out.timedOut || errors.Is(err, errTooLong)
		out.err = listFailed(out.resource, err)
	}
}

// lacksStorage reports whether an extension API server has no storage of a type for the namespace. A 404
// without a Status only means that the path is unknown.
func (p *purger) lacksStorage(r discovery.Type, err error) bool {
	return r.Group != "" && apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		p.Clock.Since(p.seen) > storageTimeout
}

func isNotDeleted(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }

// isRemovable reports whether a DELETE has an effect. For an object with finalizers of the garbage collector, a
// second DELETE with background propagation removes these finalizers.
func isRemovable(o metav1.PartialObjectMetadata) bool {
	return isNotDeleted(o) || slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents) ||
		slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}

// add counts the objects of a page.
func (o *typeResult) add(items []metav1.PartialObjectMetadata) {
	if len(items) > 0 && o.examples == nil {
		o.finalizers, o.examples = map[string]int{}, map[string][]string{}
	}
	for _, item := range items {
		o.remaining++
		for _, f := range item.Finalizers {
			o.finalizers[f]++
			o.addExample(f, item.Name)
		}
		if len(item.Finalizers) == 0 {
			o.addExample("", item.Name)
		}
	}
}

func (o *typeResult) addExample(finalizer, name string) {
	if names := o.examples[finalizer]; len(names) < maxExamples {
		o.examples[finalizer] = append(names, name)
	}
}

// pageSize returns the number of objects per request: an eighth after each pass that timed out.
func (p *purger) pageSize(r discovery.Type) int64 {
	return max(pageSize>>(3*p.timeouts[r.GroupResource()]), 1)
}

// list reads one page, in the latest version if the options have none.
func (p *purger) list(ctx context.Context, r discovery.Type, options metav1.ListOptions) (page *metav1.PartialObjectMetadataList, err error) {
	options.Limit = p.pageSize(r)
	err = p.send(ctx, min(minTimeout<<p.timeouts[r.GroupResource()], maxTimeout), func(ctx context.Context) error {
		page, err = p.resource(r).List(ctx, options)
		return err
	})
	return page, err
}

func (p *purger) resource(r discovery.Type) metadata.ResourceInterface {
	return p.metadata.Resource(r.GroupVersionResource).Namespace(p.namespace.Name)
}
