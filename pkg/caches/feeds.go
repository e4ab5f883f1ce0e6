package caches

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
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
	// feedsPerLink leaves room for lists on a connection: API servers allow 100 streams on one
	// (--http2-max-streams-per-connection).
	feedsPerLink = 64
	// listsAtOnce bounds the first lists that are under way. What fails has as many places of its own, so
	// that it is in nobody's way.
	listsAtOnce = 8
	// placeFor is how long a list keeps its place. One that takes longer is large, or of an API that does not answer.
	placeFor = 2 * time.Second
	// Pauses after attempts that failed, doubled from the first to the last.
	minFeedPause = time.Second
	maxFeedPause = time.Minute
	// lastingFeed is how long an attempt has lasted after which the next failure counts as the first.
	lastingFeed = 2 * time.Minute
	// silencePatience is the time without a byte after which a watch is opened anew. Bookmarks come every one or
	// two minutes.
	silencePatience = 3 * time.Minute
	// manyObjects are so many in lists that the memory which only the lists needed, 1 to 2 KiB each, is worth
	// giving back.
	manyObjects = 10_000
)

// FeedStore is where a feed puts the metadata of the objects of one type. It is called from one goroutine.
// What it is given is its own.
type FeedStore = cache.TransformingStore

// FeedEvents are the callbacks of a feed. They run in the goroutine of the feed. No callback may be nil.
type FeedEvents struct {
	// Listed is called after the store has received a list.
	Listed func()
	// Lost is called when the store is out of date until the next list. The error is nil if the watch has ended
	// without an error.
	Lost func(error)
}

// Feeds keep the metadata of types, one stream per type, in stores that belong to those who ask for them;
// nothing is copied from there. Unlike informers, feeds can be started and stopped while the process runs.
// They share connections that nothing else uses, with no more than feedsPerLink feeds on one, because an API
// server limits the streams of a connection. Connections are kept for later feeds.
type Feeds struct {
	caches       *Caches
	clock        clock.WithTicker
	first, again *semaphore.Weighted

	lock    sync.Mutex
	feeds   map[schema.GroupVersionResource]*Feed
	links   []*feedLink
	brought int // objects of lists since memory was given back
}

// feedLink is a client with connections of its own.
type feedLink struct {
	client metadata.Interface
	feeds  int // that use it
}

func newFeeds(c *Caches) *Feeds {
	f := &Feeds{
		caches: c, clock: c.cfg.Clock, feeds: map[schema.GroupVersionResource]*Feed{},
		first: semaphore.NewWeighted(listsAtOnce), again: semaphore.NewWeighted(listsAtOnce),
	}
	c.Alongside(f.reopenSilent)
	return f
}

// reopenSilent opens silent watches anew until ctx ends.
func (f *Feeds) reopenSilent(ctx context.Context) {
	transport := f.caches.cfg.Transport
	for transport != nil && timing.Sleep(ctx, f.clock, silencePatience/3) {
		since := f.clock.Now().Add(-silencePatience)
		f.lock.Lock()
		for resource, feed := range f.feeds {
			if last := timing.Later(transport.LastActivity(resource), feed.reopened); last.Before(since) {
				feed.reopened = f.clock.Now()
				transport.Reopen(resource, since)
			}
		}
		f.lock.Unlock()
	}
}

// Feed brings in one type.
type Feed struct {
	feeds    *Feeds
	resource schema.GroupVersionResource
	link     *feedLink
	store    FeedStore
	events   FeedEvents
	stop     context.CancelFunc
	done     chan struct{}
	reopened time.Time // or started; guarded by the lock of feeds

	lock    sync.Mutex
	attempt *attempt // nil: it pauses, or waits for a place
}

// attempt is one list with the watch that follows it.
type attempt struct {
	listed  time.Time // zero: not yet
	leave   func()    // its place among the lists
	refused error     // what the API server answered to the request for a stream; it is not asked for a list then
}

// Discovery returns a client that asks which types there are.
func (f *Feeds) Discovery() (*discovery.DiscoveryClient, error) {
	if f.caches.cfg.Direct == nil {
		return nil, errNoWay
	}
	cfg, client, err := f.caches.cfg.Direct()
	if err != nil {
		return nil, err
	}
	return discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
}

var errNoWay = errors.New("feeds have no way to the API server")

// Start begins to bring in a type, until ctx ends or the feed is stopped. It is refused for a type that has a
// cache of all namespaces, or a feed: no type has two streams.
func (f *Feeds) Start(ctx context.Context, resource schema.GroupVersionResource, store FeedStore, events FeedEvents) (*Feed, error) {
	for _, t := range f.caches.types {
		if t.Resource.GroupResource() == resource.GroupResource() && t.Namespace == metav1.NamespaceAll {
			return nil, fmt.Errorf("feed of %v: the type has a cache", resource)
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.feeds[resource] != nil {
		return nil, fmt.Errorf("feed of %v: the type has one already", resource)
	}
	link, err := f.leastUsed()
	if err != nil {
		return nil, fmt.Errorf("feed of %v: %w", resource, err)
	}
	link.feeds++
	ctx, stop := context.WithCancel(ctx)
	feed := &Feed{feeds: f, resource: resource, link: link, store: store, events: events, stop: stop, done: make(chan struct{}), reopened: f.clock.Now()}
	f.feeds[resource] = feed
	go feed.run(ctx)
	return feed, nil
}

// leastUsed returns the link with the fewest feeds, a new one if none has room.
func (f *Feeds) leastUsed() (*feedLink, error) {
	var least *feedLink
	for _, l := range f.links {
		if l.feeds < feedsPerLink && (least == nil || l.feeds < least.feeds) {
			least = l
		}
	}
	if least != nil {
		return least, nil
	}
	if f.caches.cfg.Direct == nil {
		return nil, errNoWay
	}
	cfg, client, err := f.caches.cfg.Direct()
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfigAndClient(cfg, &http.Client{Transport: impatient{client.Transport}, Timeout: client.Timeout})
	if err != nil {
		return nil, err
	}
	least = &feedLink{client: m}
	f.links = append(f.links, least)
	return least, nil
}

// Stop ends the feed and returns when it has ended: the store is told nothing more.
func (f *Feed) Stop() {
	f.stop()
	<-f.done
}

func (f *Feed) run(ctx context.Context) {
	defer close(f.done)
	defer f.leave()
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(f.listWatch(), f.link.client), &metav1.PartialObjectMetadata{}, told{f.store, f},
		cache.ReflectorOptions{Name: "feed", TypeDescription: f.resource.String()})
	for failures := 0; ; {
		a, err := f.try(ctx, reflector, failures > 0)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(4).Info("Feed lists anew", "resource", f.resource, "reason", err)
		f.events.Lost(err)
		if failures++; !a.listed.IsZero() && f.feeds.clock.Since(a.listed) > lastingFeed {
			failures = 1
		}
		if !timing.Sleep(ctx, f.feeds.clock, pauseOf(failures)) {
			return
		}
	}
}

// leave gives back what the feed had.
func (f *Feed) leave() {
	f.stop()
	if transport := f.feeds.caches.cfg.Transport; transport != nil {
		transport.Forget(f.resource) // before another feed of the type can begin
	}
	f.feeds.lock.Lock()
	defer f.feeds.lock.Unlock()
	f.link.feeds--
	delete(f.feeds.feeds, f.resource)
}

// try lists once and watches for as long as that goes well.
func (f *Feed) try(ctx context.Context, reflector *cache.Reflector, again bool) (*attempt, error) {
	places := f.feeds.first
	if again {
		places = f.feeds.again
	}
	a := &attempt{}
	if err := places.Acquire(ctx, 1); err != nil {
		return a, err
	}
	a.leave = sync.OnceFunc(func() { places.Release(1) })
	defer a.leave()
	defer time.AfterFunc(placeFor, a.leave).Stop()
	f.lock.Lock()
	f.attempt = a
	f.lock.Unlock()
	err := reflector.ListAndWatchWithContext(ctx)
	f.lock.Lock()
	defer f.lock.Unlock()
	f.attempt = nil
	return a, err
}

// pauseOf is how long to wait after so many failures in a row; spread, so that those who failed together do
// not come back together.
func pauseOf(failures int) time.Duration {
	pause := min(minFeedPause<<min(failures-1, 10), maxFeedPause)
	return pause - rand.N(pause/4)
}

// told is the store of a feed, which is told of lists.
type told struct {
	FeedStore
	feed *Feed
}

// Replace implements cache.ReflectorStore.
func (s told) Replace(list []any, version string) error {
	if err := s.FeedStore.Replace(list, version); err != nil {
		return err
	}
	f := s.feed
	f.lock.Lock()
	if f.attempt != nil {
		f.attempt.listed = f.feeds.clock.Now()
		f.attempt.leave()
	}
	f.lock.Unlock()
	f.events.Listed()
	if f.feeds.caches.cfg.FreeMemory && f.feeds.worthFreeing(len(list)) {
		debug.FreeOSMemory()
	}
	return nil
}

// worthFreeing notes that a list has brought so many objects. It reports whether the memory that lists needed
// is to be given back: client-go holds each whole until its end, so that is when no other first one has or
// waits for a place.
func (f *Feeds) worthFreeing(objects int) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.brought += objects; f.brought < manyObjects || !f.first.TryAcquire(listsAtOnce) {
		return false
	}
	f.first.Release(listsAtOnce)
	f.brought = 0
	return true
}

// listWatch asks for metadata. Lists are of what is in etcd: an older one might bring back what is gone. A
// stream that is refused because there are too many requests ends the attempt, where client-go would sleep,
// and not be woken. A watch that is refused is asked for again by client-go, for ever and seldom.
func (f *Feed) listWatch() *cache.ListWatch {
	objects := f.link.client.Resource(f.resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := f.refusal(nil); err != nil {
				return nil, err
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
			if apierrors.IsTooManyRequests(err) && o.SendInitialEvents != nil {
				return nil, f.refusal(err)
			}
			return w, err
		},
	}
}

// refusal notes that the stream of this attempt was refused; nil: only asks. What it returns is no reason for
// client-go to sleep.
func (f *Feed) refusal(err error) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.attempt == nil {
		return err
	}
	if err != nil {
		f.attempt.refused = fmt.Errorf("the API server has no room for the stream: %s", err.Error()) // client-go does not ask again after this one
	}
	return f.attempt.refused
}

// impatient hides from a client for how long an API server asks it to wait. It would do so up to ten times,
// where nothing is told of it and nothing wakes it; feeds have pauses of their own.
type impatient struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (i impatient) WrappedRoundTripper() http.RoundTripper { return i.next }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := i.next.RoundTrip(req)
	if resp != nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}
