package caches

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/freshness"
)

const widgets = "widgets"

func gvr(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: resource}
}

func widget(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"a": "b"}}
}

// newFeedServer returns an API server with the type widgets, and feeds with the transport of a manager.
func newFeedServer(t *testing.T) (*fakeapi.Types, *Feeds) {
	t.Helper()
	api, transport := fakeapi.NewTypes(t), freshness.NewTransport(clock.RealClock{})
	api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget", Namespaced: true})
	c := New(fake.NewClientset(), Config{Name: t.Name(), Direct: func() (*rest.Config, *http.Client, error) {
		return transport.Client(api.Config(), false)
	}})
	fakeapi.Must(c.Nodes())
	return api, c.Feeds()
}

// kept is a store without labels that counts lists and lost watches.
type kept struct {
	cache.Store
	lock   sync.Mutex
	listed int
	lost   []error
}

func newKept() *kept { return &kept{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)} }

// Transformer implements FeedStore.
func (k *kept) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		obj.(metav1.Object).SetLabels(nil)
		return obj, nil
	}
}

func (k *kept) events() FeedEvents {
	return FeedEvents{
		Listed: func() {
			k.lock.Lock()
			defer k.lock.Unlock()
			k.listed++
		},
		Watched: func(error) {},
		Lost: func(err error) {
			k.lock.Lock()
			defer k.lock.Unlock()
			k.lost = append(k.lost, err)
		},
	}
}

// shows waits until the store has exactly these keys.
func (k *kept) shows(t *testing.T, keys ...string) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		k.lock.Lock()
		defer k.lock.Unlock()
		got := slices.Sorted(slices.Values(k.ListKeys()))
		if k.listed == 0 || !slices.Equal(got, keys) {
			return fmt.Errorf("listed %d times, the store has %v, want %v", k.listed, got, keys)
		}
		return nil
	})
}

func startFeed(t *testing.T, feeds *Feeds, resource string) (*Feed, *kept) {
	t.Helper()
	k := newKept()
	f := fakeapi.Must(feeds.Start(t.Context(), gvr(resource), k, k.events()))
	t.Cleanup(f.Stop)
	return f, k
}

func TestFeedFollowsObjects(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("streamed %v", stream), func(t *testing.T) {
			api, feeds := newFeedServer(t)
			if !stream {
				api.NoStream("example.com/v1", widgets)
			}
			api.Put("example.com/v1", widgets, widget("first"))
			_, k := startFeed(t, feeds, widgets)
			k.shows(t, "ns/first")
			if labels := k.List()[0].(metav1.Object).GetLabels(); len(labels) > 0 {
				t.Errorf("the list came with labels %v, which the store does not want", labels)
			}
			api.Put("example.com/v1", widgets, widget("second"))
			k.shows(t, "ns/first", "ns/second")
			api.Remove("example.com/v1", widgets, "ns", "first")
			k.shows(t, "ns/second")
			if n := api.Count("list widgets"); (n == 0) != stream {
				t.Errorf("%d lists", n)
			}
		})
	}
}

func TestNoTypeHasTwoStreams(t *testing.T) {
	_, feeds := newFeedServer(t)
	startFeed(t, feeds, widgets)
	k := newKept()
	_, err := feeds.Start(t.Context(), gvr(widgets), k, k.events())
	fakeapi.WantPart(t, "error of a second feed", fmt.Sprint(err), "has a feed")
	_, err = feeds.Start(t.Context(), corev1.SchemeGroupVersion.WithResource("nodes"), k, k.events())
	fakeapi.WantPart(t, "error of a feed of a type with a cache", fmt.Sprint(err), "has a cache")
}

// client-go sleeps for up to a minute after a 429, even after the end of the context.
func TestRejectedFeedsCanBeStopped(t *testing.T) {
	api, feeds := newFeedServer(t)
	api.BreakType("example.com/v1", widgets, http.StatusTooManyRequests)
	f, k := startFeed(t, feeds, widgets)
	fakeapi.Eventually(t, func() error {
		k.lock.Lock()
		defer k.lock.Unlock()
		if len(k.lost) == 0 || !strings.Contains(fmt.Sprint(k.lost[0]), "streaming list was rejected") {
			return fmt.Errorf("events %v", k.lost)
		}
		return nil
	})
	f.Stop()
	if n := api.Count("list widgets"); n > 0 {
		t.Errorf("%d lists of a server that has too many requests", n)
	}
}

// A watch that is rejected with 429 resumes at the last version, without a list and without the delay of Retry-After.
func TestRejectedWatchesResume(t *testing.T) {
	api, feeds := newFeedServer(t)
	api.Put("example.com/v1", widgets, widget("first"))
	_, k := startFeed(t, feeds, widgets)
	k.shows(t, "ns/first")
	api.BreakType("example.com/v1", widgets, http.StatusTooManyRequests)
	fakeapi.Eventually(t, func() error {
		if n := api.Count("watch widgets"); n < 3 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	api.BreakType("example.com/v1", widgets, 0)
	api.Put("example.com/v1", widgets, widget("late"))
	k.shows(t, "ns/first", "ns/late")
	k.lock.Lock()
	defer k.lock.Unlock()
	if n := api.Count("list widgets"); n > 0 || k.listed != 1 || len(k.lost) > 0 {
		t.Errorf("%d lists, listed %d times, lost %v", n, k.listed, k.lost)
	}
}

func TestSlowListsDoNotBlockOtherTypes(t *testing.T) {
	api, feeds := newFeedServer(t)
	for n := range 3 * listsAtOnce {
		name := fmt.Sprintf("broken%d", n)
		api.AddType("example.com/v1", metav1.APIResource{Name: name, Kind: "Broken"})
		api.BlockRequests(t, "example.com/v1", name)
		startFeed(t, feeds, name)
	}
	_, k := startFeed(t, feeds, widgets)
	k.shows(t)
}

func TestMemoryIsReturnedAfterLongLists(t *testing.T) {
	f := newFeeds(&Caches{})
	for _, step := range []struct {
		under   int64 // lists that are under way
		objects int
		want    bool
	}{
		{0, manyObjects - 1, false},
		{1, 1, false}, // enough objects, but another list is in flight
		{0, 0, true},
		{0, 1, false}, // counted from zero
		{0, manyObjects, true},
	} {
		if !f.firstLists.TryAcquire(step.under) {
			t.Fatal("no place is free")
		}
		fakeapi.Want(t, fmt.Sprintf("freed after %+v", step), f.worthFreeing(step.objects), step.want)
		f.firstLists.Release(step.under)
	}
}

// Feeds share connections, and later feeds use the connections of stopped feeds. Stopped feeds leave nothing behind.
func TestFeedsShareConnections(t *testing.T) {
	api, feeds := newFeedServer(t)
	start := func(from, to int) (started []*Feed) {
		for n := from; n < to; n++ {
			name := fmt.Sprintf("t%d", n)
			api.AddType("example.com/v1", metav1.APIResource{Name: name, Kind: "T"})
			f, k := startFeed(t, feeds, name)
			k.shows(t)
			started = append(started, f)
		}
		return started
	}
	stop := func(running []*Feed) {
		for _, f := range running {
			f.Stop()
			api.RemoveType("example.com/v1", f.resource.Resource)
		}
	}
	start(0, feedsPerLink-20)
	stop(start(feedsPerLink, feedsPerLink+20))
	before, watches := runtime.NumGoroutine(), api.OpenWatches()
	for range 3 {
		stop(start(feedsPerLink, feedsPerLink+20))
	}
	fakeapi.Eventually(t, func() error {
		if now := runtime.NumGoroutine(); now > before+5 || api.OpenWatches() > watches || len(feeds.feeds) > feedsPerLink-20 {
			return fmt.Errorf("%d goroutines before and %d after, %d watches before and %d after, %d feeds",
				before, now, watches, api.OpenWatches(), len(feeds.feeds))
		}
		return nil
	})
	stop(start(feedsPerLink, feedsPerLink+20))
	fakeapi.Want(t, "connections", len(feeds.links), 1)
	start(feedsPerLink, feedsPerLink+21)
	fakeapi.Want(t, "connections with one more feed than fits", len(feeds.links), 2)
}

func TestPausesOfFeedsGrowAndVary(t *testing.T) {
	for failures, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		different := map[time.Duration]bool{}
		for range 20 {
			pause := pauseAfter(failures)
			if different[pause] = true; pause > most || pause < most*3/4 {
				t.Errorf("pause of %v after %d failures, want up to a quarter less than %v", pause, failures, most)
			}
		}
		if len(different) < 2 {
			t.Errorf("all pauses after %d failures are equal", failures)
		}
	}
}
