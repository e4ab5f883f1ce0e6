package namespace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"minikcm/pkg/controllers/internal/discovery"
)

const (
	pageSize    = 500              // objects per request at most
	minPatience = 10 * time.Second // for an answer, to begin with
	maxPatience = time.Minute      // kube-apiserver v1.37 ends other requests than watches then, by default (--request-timeout)
	// briskAnswer is a time after which twice as many objects are not yet too many.
	briskAnswer = minPatience / 4
)

// stride is how a type takes requests of one kind in one namespace: how many objects in each, and how long that may take. Conversion webhooks,
// admission that is asked for each object and large objects can make a page of 500 take longer than any request may.
type stride struct {
	page     int64
	patience time.Duration
}

func firstStride() stride { return stride{pageSize, minPatience} }

// after is the stride that follows a request that was sent with asked: a quarter of the page and twice the time if that took too long, twice the
// page if it was answered at once. Of several that were sent together with one stride, the first decides.
func (p stride) after(asked stride, tooLong, brisk bool) stride {
	switch {
	case tooLong:
		return stride{min(p.page, max(asked.page/4, 1)), max(p.patience, min(2*asked.patience, maxPatience))}
	case brisk && p == asked:
		return stride{min(2*p.page, pageSize), max(p.patience/2, minPatience)}
	}
	return p
}

// tooLong reports whether a request that took so long and ended in err might have been answered had it asked for less.
func tooLong(err error, took time.Duration) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || took >= minPatience
}

// strides are the strides of a namespace's types as far as they are not the first one. Losing them costs requests that take too long.
type strides struct {
	lock            sync.Mutex
	lists, removals map[discovery.Type]stride
}

func newStrides() *strides {
	return &strides{lists: map[discovery.Type]stride{}, removals: map[discovery.Type]stride{}}
}

// list is how the type is to be listed, for removing what is listed or not.
func (p *strides) list(r discovery.Type, remove bool) stride {
	p.lock.Lock()
	defer p.lock.Unlock()
	next := strideOf(p.lists, r)
	if remove {
		next.page = min(next.page, strideOf(p.removals, r).page)
	}
	return next
}

// removal is how long the removal of a page may take. A page that can be made smaller is given no more than the first patience, which is less
// than a write may take under the lease; a single object as long as anybody lets it.
func removalPatience(page int64) time.Duration {
	if page > 1 {
		return minPatience
	}
	return maxPatience
}

func (p *strides) listed(r discovery.Type, asked stride, took time.Duration, err error) {
	p.note(p.lists, r, asked, took, err)
}

func (p *strides) removed(r discovery.Type, page int64, took time.Duration, err error) {
	p.note(p.removals, r, stride{page, minPatience}, took, err)
}

func (p *strides) note(of map[discovery.Type]stride, r discovery.Type, asked stride, took time.Duration, err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	next := strideOf(of, r).after(asked, tooLong(err, took), err == nil && took <= briskAnswer)
	if next == firstStride() {
		delete(of, r)
		return
	}
	of[r] = next
}

// slow reports whether some type needs more patience than the first.
func (p *strides) slow() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(p.lists)), func(x stride) bool { return x.patience > minPatience })
}

func strideOf(of map[discovery.Type]stride, r discovery.Type) stride {
	if p, ok := of[r]; ok {
		return p
	}
	return firstStride()
}
