package caches

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

const (
	// feedsPerLink leaves room for lists on a connection. API servers allow 100 streams per connection
	// (--http2-max-streams-per-connection).
	feedsPerLink = 64
	// listsAtOnce bounds the first lists in flight. Retries have a bound of their own.
	listsAtOnce = 8
	// listSlotTime is the time for which a list counts towards listsAtOnce. A list that takes longer is large, or
	// the API is slow.
	listSlotTime = 2 * time.Second
	// After a failure, the pause doubles from minFeedPause to maxFeedPause.
	minFeedPause = time.Second
	maxFeedPause = time.Minute
	// stableAfter is the age of a watch whose end counts as the first failure.
	stableAfter = 2 * time.Minute
	// manyObjects is the number of listed objects after which memory is returned to the operating system. During
	// a list each object needs 1 to 2 KiB more.
	manyObjects = 10_000
)

// FeedStore receives the metadata of the objects of one type, from one goroutine. The store owns the objects.
type FeedStore = cache.TransformingStore

// FeedEvents are the callbacks of a feed. They run in the goroutine of the feed. No callback may be nil.
type FeedEvents struct {
	// Listed is called after the store has received a list.
	Listed func()
	// Watched is called after a request for a watch, except for a streaming list, that was accepted or rejected with
	// 429. client-go repeats a rejected request for ever, for example while the API server cannot convert an object.
	Watched func(error)
	// Lost is called when the store is out of date until the next list. The error is nil if the watch has ended
	// without an error.
	Lost func(error)
}

// Feeds fill stores with the metadata of types, with one stream per type and no further copy. Unlike informers,
// feeds can be started and stopped while the process runs. Feeds have connections of their own, with at most
// feedsPerLink feeds each. Connections are kept for later feeds.
type Feeds struct {
	caches              *Caches
	firstLists, retries *semaphore.Weighted // lists in flight

	lock   sync.Mutex
	feeds  map[schema.GroupVersionResource]*Feed
	links  []*feedLink
	listed int // objects since memory was returned
}

// feedLink is a client with connections of its own.
type feedLink struct {
	client metadata.Interface
	feeds  int
}

func newFeeds(c *Caches) *Feeds {
	return &Feeds{
		caches: c, feeds: map[schema.GroupVersionResource]*Feed{},
		firstLists: semaphore.NewWeighted(listsAtOnce), retries: semaphore.NewWeighted(listsAtOnce),
	}
}

// Feed is the stream of one type.
type Feed struct {
	feeds    *Feeds
	resource schema.GroupVersionResource
	link     *feedLink
	store    FeedStore
	events   FeedEvents
	stop     context.CancelFunc
	done     chan struct{}

	// State of the current attempt, which is a list and a watch.
	listedAt time.Time // zero before the list
	freeSlot func()
	rejected error // response to the request for a streaming list
}

// Discovery returns a discovery client.
func (f *Feeds) Discovery() (*discovery.DiscoveryClient, error) {
	cfg, client, err := f.caches.cfg.Direct()
	if err != nil {
		return nil, err
	}
	return discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
}

// Start starts the feed of a type. The feed ends with ctx or Stop. Start fails for a type with a feed or a cache of
// all namespaces, because no type may have two streams.
func (f *Feeds) Start(ctx context.Context, resource schema.GroupVersionResource, store FeedStore, events FeedEvents) (*Feed, error) {
	for _, t := range f.caches.types {
		if t.Resource.GroupResource() == resource.GroupResource() && t.Namespace == metav1.NamespaceAll {
			return nil, fmt.Errorf("feed of %v: the type has a cache", resource)
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.feeds[resource] != nil {
		return nil, fmt.Errorf("feed of %v: the type has a feed", resource)
	}
	link, err := f.linkWithRoom()
	if err != nil {
		return nil, fmt.Errorf("feed of %v: %w", resource, err)
	}
	link.feeds++
	ctx, stop := context.WithCancel(ctx)
	feed := &Feed{feeds: f, resource: resource, link: link, store: store, events: events, stop: stop, done: make(chan struct{})}
	f.feeds[resource] = feed
	go feed.runFeed(ctx)
	return feed, nil
}

// linkWithRoom returns the first link that is not full, or a new link.
func (f *Feeds) linkWithRoom() (*feedLink, error) {
	if i := slices.IndexFunc(f.links, func(l *feedLink) bool { return l.feeds < feedsPerLink }); i >= 0 {
		return f.links[i], nil
	}
	cfg, client, err := f.caches.cfg.Direct()
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfigAndClient(cfg, &http.Client{Transport: withoutRetryAfter{client.Transport}, Timeout: client.Timeout})
	if err != nil {
		return nil, err
	}
	link := &feedLink{client: m}
	f.links = append(f.links, link)
	return link, nil
}

// Stop ends the feed. It returns after the last call of the store.
func (f *Feed) Stop() {
	f.stop()
	<-f.done
}

func (f *Feed) runFeed(ctx context.Context) {
	defer close(f.done)
	defer f.removeFeed()
	source := cache.ToListWatcherWithWatchListSemantics(f.listWatch(), f.link.client)
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, reportingStore{f.store, f},
		cache.ReflectorOptions{Name: "feed", TypeDescription: f.resource.String()})
	for failures := 0; ; {
		err := f.listAndWatch(ctx, reflector, failures > 0)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(4).Info("Feed lists again", "resource", f.resource, "reason", err)
		f.events.Lost(err)
		if failures++; !f.listedAt.IsZero() && time.Since(f.listedAt) > stableAfter {
			failures = 1
		}
		if !timing.Sleep(ctx, clock.RealClock{}, pauseAfter(failures)) {
			return
		}
	}
}

func (f *Feed) removeFeed() {
	f.stop()
	f.feeds.lock.Lock()
	defer f.feeds.lock.Unlock()
	f.link.feeds--
	delete(f.feeds.feeds, f.resource)
}

func (f *Feed) listAndWatch(ctx context.Context, reflector *cache.Reflector, retry bool) error {
	slots := f.feeds.firstLists
	if retry {
		slots = f.feeds.retries
	}
	if err := slots.Acquire(ctx, 1); err != nil {
		return err
	}
	f.listedAt, f.rejected, f.freeSlot = time.Time{}, nil, sync.OnceFunc(func() { slots.Release(1) })
	defer f.freeSlot()
	defer time.AfterFunc(listSlotTime, f.freeSlot).Stop()
	return reflector.ListAndWatchWithContext(ctx)
}

// pauseAfter returns the pause after a number of failures in a row, with jitter.
func pauseAfter(failures int) time.Duration {
	pause := min(minFeedPause<<min(failures-1, 10), maxFeedPause)
	return pause - rand.N(pause/4)
}

// reportingStore reports the lists of a feed.
type reportingStore struct {
	FeedStore
	feed *Feed
}

// Replace implements cache.ReflectorStore.
func (s reportingStore) Replace(list []any, version string) error {
	if err := s.FeedStore.Replace(list, version); err != nil {
		return err
	}
	f := s.feed
	f.listedAt = time.Now()
	f.freeSlot()
	f.events.Listed()
	if f.feeds.caches.cfg.FreeMemory && f.feeds.worthFreeing(len(list)) {
		debug.FreeOSMemory()
	}
	return nil
}

// worthFreeing adds the objects of a list. It reports whether to return memory to the operating system now: client-go
// holds each list until its end, so no other first list may be in flight.
func (f *Feeds) worthFreeing(objects int) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.listed += objects; f.listed < manyObjects || !f.firstLists.TryAcquire(listsAtOnce) {
		return false
	}
	f.firstLists.Release(listsAtOnce)
	f.listed = 0
	return true
}

// listWatch returns lists and watches of metadata. Lists come from etcd, because an older list might contain
// deleted objects. A streaming list that is rejected with 429 ends the attempt: client-go would sleep, and a stopped
// feed would wait for the end of the sleep.
func (f *Feed) listWatch() *cache.ListWatch {
	objects := f.link.client.Resource(f.resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if f.rejected != nil {
				return nil, f.rejected
			}
			o.ResourceVersion, o.ResourceVersionMatch = "", ""
			page, err := objects.List(ctx, o)
			if err != nil {
				return nil, err
			}
			trim := f.store.Transformer()
			for i := range page.Items {
				if _, err := trim(&page.Items[i]); err != nil {
					return nil, err
				}
			}
			return page, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, o)
			switch rejected := apierrors.IsTooManyRequests(err); {
			case rejected && o.SendInitialEvents != nil:
				f.rejected = fmt.Errorf("streaming list was rejected: %s", err.Error()) // %w would make client-go sleep
				return nil, f.rejected
			case o.SendInitialEvents == nil && (rejected || err == nil):
				f.events.Watched(err)
			}
			return w, err
		},
	}
}

// withoutRetryAfter removes Retry-After from responses. client-go would wait for as long, up to ten times, without an
// error.
type withoutRetryAfter struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (t withoutRetryAfter) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t withoutRetryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if resp != nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}
