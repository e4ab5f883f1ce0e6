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
	// hurryPatience is how old an attempt must be to be given up when somebody is in a hurry.
	hurryPatience = time.Second
	// lastingFeed is how long an attempt has lasted after which the next failure counts as the first.
	lastingFeed = 2 * time.Minute
	// refusalPatience is how long a watch is refused before that is told.
	refusalPatience = 10 * time.Second
	// manyObjects are so many in lists that the memory which only the lists needed, 1 to 2 KiB each, is worth
	// giving back.
	manyObjects = 10_000
)

// FeedStore is where a feed puts the metadata of the objects of one type. It is called from one goroutine.
// What it is given is its own.
type FeedStore = cache.TransformingStore

// FeedEvents are what whoever has a feed is told of it, and asked, from the feed's goroutine. No function may be nil.
type FeedEvents struct {
	// Listed: the store holds a list.
	Listed func()
	// Lost: the store is no longer followed and will be listed anew. The error says why; nil: its watch has
	// ended, as watches do.
	Lost func(error)
	// Refused: the API server has answered the watch with 429 for 10 s. The store keeps what it has. The
	// watch is resumed where it left off as soon as it is accepted, which Refused(nil) tells.
	Refused func(error)
}

// Feeds keep the metadata of types, one stream per type, in stores that belong to those who ask for them;
// nothing is copied from there. Unlike informers, feeds can be started and stopped while the process runs.
// They share connections that nothing else uses, with no more than feedsPerLink feeds on one, because an API
// server limits the streams of a connection. Connections are kept for later feeds.
type Feeds struct {
	caches       *Caches
	clock        clock.WithTicker
	first, again *semaphore.Weighted
	refusals     time.Duration // refusalPatience

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
	return &Feeds{
		caches: c, clock: c.cfg.Clock, feeds: map[schema.GroupVersionResource]*Feed{},
		first: semaphore.NewWeighted(listsAtOnce), again: semaphore.NewWeighted(listsAtOnce), refusals: refusalPatience,
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
	hurried  chan struct{} // holds one while there is to be no pause

	lock    sync.Mutex
	attempt *attempt // nil: it pauses, or waits for a place
	begun   bool     // the first attempt has a place
}

// Begun reports whether the first list of the feed has begun. Until then the feed waits for a place among the lists.
func (f *Feed) Begun() bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.begun
}

// attempt is one list with the watch that follows it.
type attempt struct {
	begun   time.Time
	listed  time.Time // zero: not yet
	cancel  context.CancelFunc
	leave   func()    // its place among the lists
	hurried bool      // somebody is in a hurry: if it fails, there is no pause
	refused error     // what the API server answered to the request for a stream; it is not asked for a list then
	barred  time.Time // since when its watch is refused; zero: it is not
	told    bool      // that it is
	ended   bool      // by us
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
	feed := &Feed{feeds: f, resource: resource, link: link, store: store, events: events, stop: stop, done: make(chan struct{}), hurried: make(chan struct{}, 1)}
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

// Heard returns the time of the last byte of a type, with or without a cache. It returns zero before the
// first byte, and now without a Transport.
func (f *Feeds) Heard(resource schema.GroupVersionResource) time.Time {
	if f.caches.cfg.Transport == nil {
		return f.clock.Now()
	}
	return f.caches.cfg.Transport.LastActivity(resource)
}

// Stop ends the feed and returns when it has ended: the store is told nothing more.
func (f *Feed) Stop() {
	f.stop()
	<-f.done
}

// Reopen ends the watch, which goes on where it left off, on another connection if nothing has come on this
// one since.
func (f *Feed) Reopen(since time.Time) {
	if transport := f.feeds.caches.cfg.Transport; transport != nil {
		transport.Reopen(f.resource, since)
	}
}

// Hurry has the feed try again soon, because what was in its way may be gone. It ends a pause at once. An
// attempt that has not listed yet is given up if nothing is heard of the type within hurryPatience of the
// attempt's start, and the next attempt begins without a pause. It does nothing to a feed that has its list,
// or that was stopped.
func (f *Feed) Hurry() {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch a := f.attempt; {
	case a == nil:
		f.skipPause()
	case a.listed.IsZero():
		a.hurried = true
		time.AfterFunc(max(hurryPatience-f.feeds.clock.Since(a.begun), 0), func() {
			f.giveUp(func(now *attempt) bool { return now == a && !f.feeds.Heard(f.resource).After(a.begun) })
		})
	}
}

// GiveUp ends an attempt that has not brought its list, and of which nothing has been heard for so long. The
// next one begins at once.
func (f *Feed) GiveUp(quiet time.Duration) {
	f.giveUp(func(a *attempt) bool {
		last := a.begun
		if heard := f.feeds.Heard(f.resource); heard.After(last) {
			last = heard
		}
		return f.feeds.clock.Since(last) >= quiet
	})
}

// giveUp ends an attempt without a list that is hopeless.
func (f *Feed) giveUp(hopeless func(*attempt) bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if a := f.attempt; a != nil && a.listed.IsZero() && hopeless(a) {
		a.hurried, a.ended = true, true
		a.cancel()
	}
}

// skipPause has the next pause end as it begins. It is taken back by the next attempt.
func (f *Feed) skipPause() {
	select {
	case f.hurried <- struct{}{}:
	default: // it does already
	}
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
		if !f.pause(ctx, pauseOf(failures)) {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places := f.feeds.first
	if again {
		places = f.feeds.again
	}
	a := &attempt{cancel: cancel}
	if err := places.Acquire(ctx, 1); err != nil {
		return a, err
	}
	a.leave = sync.OnceFunc(func() { places.Release(1) })
	defer a.leave()
	defer time.AfterFunc(placeFor, a.leave).Stop()
	f.lock.Lock()
	a.begun, f.attempt, f.begun = f.feeds.clock.Now(), a, true
	select {
	case <-f.hurried: // it has begun
	default:
	}
	f.lock.Unlock()
	err := reflector.ListAndWatchWithContext(ctx)
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.attempt = nil; a.hurried && a.listed.IsZero() {
		f.skipPause()
	}
	if a.ended && err == nil { // client-go takes it for the end of its own
		err = errNoAnswer
	}
	return a, err
}

var errNoAnswer = errors.New("the API server does not answer")

// pause waits, and reports whether there is to be another attempt.
func (f *Feed) pause(ctx context.Context, pause time.Duration) bool {
	timer := f.feeds.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
	case <-f.hurried:
	}
	return true
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
			refused := apierrors.IsTooManyRequests(err)
			if refused && o.SendInitialEvents != nil {
				return nil, f.refusal(err)
			}
			f.answered(err, refused)
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

// answered notes how a request for a watch was answered, and tells if watches have been refused for long, or
// are no longer.
func (f *Feed) answered(err error, refused bool) {
	f.lock.Lock()
	now, a, told := f.feeds.clock.Now(), f.attempt, false
	switch {
	case a == nil:
	case !refused && err != nil: // the watch is lost, which is told, or asked for again
		if !a.told {
			a.barred = time.Time{}
		}
	case !refused:
		told, a.barred, a.told = a.told, time.Time{}, false
	case a.barred.IsZero():
		a.barred = now
	case !a.told && now.Sub(a.barred) >= f.feeds.refusals:
		told, a.told = true, true
	}
	f.lock.Unlock()
	if told {
		f.events.Refused(err)
	}
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
