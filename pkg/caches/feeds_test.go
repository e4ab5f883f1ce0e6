package caches

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	clienttesting "k8s.io/client-go/testing"
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

// feedsOn returns feeds of a server, over the line that a manager uses.
func feedsOn(t *testing.T, api *fakeapi.Types) (feeds *Feeds, ways func() int) {
	t.Helper()
	transport := freshness.NewTransport(clock.RealClock{})
	var lock sync.Mutex
	made := 0
	c := New(fake.NewClientset(), Config{Name: t.Name(), Direct: func() (*rest.Config, *http.Client, error) {
		lock.Lock()
		defer lock.Unlock()
		made++
		return transport.Client(api.Config(), false)
	}})
	if _, err := c.Nodes(); err != nil {
		t.Fatal(err)
	}
	return c.Feeds(), func() int {
		lock.Lock()
		defer lock.Unlock()
		return made
	}
}

// kept is a store of names that counts lists and lost watches.
type kept struct {
	lock    sync.Mutex
	names   map[string]bool
	version string
	labels  int // of objects that were given with labels in lists
	listed  int
	lost    []error
}

func (k *kept) do(f func()) error {
	k.lock.Lock()
	defer k.lock.Unlock()
	f()
	return nil
}

func (k *kept) Add(obj any) error {
	return k.do(func() { k.names[obj.(metav1.Object).GetName()] = true })
}
func (k *kept) Update(obj any) error { return k.Add(obj) }
func (k *kept) Delete(obj any) error {
	return k.do(func() { delete(k.names, obj.(metav1.Object).GetName()) })
}
func (k *kept) Replace(list []any, version string) error {
	return k.do(func() {
		k.names, k.version = map[string]bool{}, version
		for _, obj := range list {
			k.names[obj.(metav1.Object).GetName()] = true
			k.labels += len(obj.(metav1.Object).GetLabels())
		}
	})
}
func (k *kept) Resync() error { return nil }
func (k *kept) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		obj.(metav1.Object).SetLabels(nil)
		return obj, nil
	}
}
func (k *kept) events() FeedEvents {
	return FeedEvents{
		Listed: func() { _ = k.do(func() { k.listed++ }) },
		Lost:   func(err error) { _ = k.do(func() { k.lost = append(k.lost, err) }) },
	}
}

// shows waits until the store has exactly these names.
func (k *kept) shows(t *testing.T, names ...string) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		k.lock.Lock()
		defer k.lock.Unlock()
		for _, name := range names {
			if !k.names[name] {
				return fmt.Errorf("the store has %v, want %v", k.names, names)
			}
		}
		if k.listed == 0 || len(k.names) != len(names) {
			return fmt.Errorf("listed %d times, the store has %v, want %v", k.listed, k.names, names)
		}
		return nil
	})
}

func startFeed(t *testing.T, feeds *Feeds, resource string) (*Feed, *kept) {
	t.Helper()
	k := &kept{names: map[string]bool{}}
	f, err := feeds.Start(t.Context(), gvr(resource), k, k.events())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return f, k
}

func TestFeedFollowsObjects(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("streamed %v", stream), func(t *testing.T) {
			api := fakeapi.NewTypes(t)
			api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget", Namespaced: true})
			if !stream {
				api.NoStream("example.com/v1", widgets)
			}
			api.Put("example.com/v1", widgets, widget("first"))
			feeds, _ := feedsOn(t, api)
			_, k := startFeed(t, feeds, widgets)
			k.shows(t, "first")
			api.Put("example.com/v1", widgets, widget("second"))
			k.shows(t, "first", "second")
			api.Remove("example.com/v1", widgets, "ns", "first")
			k.shows(t, "second")
			if k.labels > 0 {
				t.Error("the list came with labels, which the store does not want")
			}
			if n := api.RequestCount("list /apis/example.com/v1/widgets"); (n == 0) != stream {
				t.Errorf("%d lists", n)
			}
		})
	}
}

func TestNoTypeHasTwoStreams(t *testing.T) {
	api := fakeapi.NewTypes(t)
	api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget"})
	feeds, _ := feedsOn(t, api)
	startFeed(t, feeds, widgets)
	k := &kept{names: map[string]bool{}}
	if _, err := feeds.Start(t.Context(), gvr(widgets), k, k.events()); err == nil || !strings.Contains(err.Error(), "has a feed") {
		t.Errorf("a second feed of a type: %v", err)
	}
	if _, err := feeds.Start(t.Context(), corev1.SchemeGroupVersion.WithResource("nodes"), k, k.events()); err == nil || !strings.Contains(err.Error(), "has a cache") {
		t.Errorf("a feed of a type with a cache: %v", err)
	}
}

// client-go sleeps for up to a minute after a 429, even after the end of the context.
func TestRejectedFeedsCanBeStopped(t *testing.T) {
	api := fakeapi.NewTypes(t)
	api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget"})
	api.BreakType("example.com/v1", widgets, http.StatusTooManyRequests)
	feeds, _ := feedsOn(t, api)
	f, k := startFeed(t, feeds, widgets)
	fakeapi.Eventually(t, func() error {
		k.lock.Lock()
		defer k.lock.Unlock()
		if len(k.lost) == 0 || !strings.Contains(fmt.Sprint(k.lost[0]), "streaming list was rejected") {
			return fmt.Errorf("told %v", k.lost)
		}
		return nil
	})
	f.Stop()
	if n := api.RequestCount("list /apis/example.com/v1/widgets"); n > 0 {
		t.Errorf("%d lists were asked for, of a server that has too many requests", n)
	}
}

// A watch that is rejected with 429 resumes at the last version, without a list.
func TestRejectedWatchesResume(t *testing.T) {
	api := fakeapi.NewTypes(t)
	api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget", Namespaced: true})
	api.Put("example.com/v1", widgets, widget("first"))
	feeds, _ := feedsOn(t, api)
	_, k := startFeed(t, feeds, widgets)
	k.shows(t, "first")
	api.BreakType("example.com/v1", widgets, http.StatusTooManyRequests)
	fakeapi.Eventually(t, func() error {
		if n := api.RequestCount("watch /apis/example.com/v1/widgets"); n < 3 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	api.BreakType("example.com/v1", widgets, 0)
	api.Put("example.com/v1", widgets, widget("late"))
	k.shows(t, "first", "late")
	k.lock.Lock()
	defer k.lock.Unlock()
	if n := api.RequestCount("list /apis/example.com/v1/widgets"); n > 0 || k.listed != 1 || len(k.lost) > 0 {
		t.Errorf("%d lists, listed %d times, lost %v", n, k.listed, k.lost)
	}
}

func TestRetryAfterIsIgnored(t *testing.T) {
	rt := impatient{answering(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}, "Audit-Id": {"a"}}}, nil
	})}
	resp, err := rt.RoundTrip(&http.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Retry-After") != "" || resp.Header.Get("Audit-Id") == "" {
		t.Errorf("headers are %v", resp.Header)
	}
	if _, err := (impatient{answering(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })}).RoundTrip(&http.Request{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("RoundTrip = %v", err)
	}
}

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

func TestSlowListsDoNotBlockOtherTypes(t *testing.T) {
	api := fakeapi.NewTypes(t)
	for n := range 3 * listsAtOnce {
		name := fmt.Sprintf("broken%d", n)
		api.AddType("example.com/v1", metav1.APIResource{Name: name, Kind: "Broken"})
		api.BlockRequests(t, "example.com/v1", name)
	}
	api.AddType("example.com/v1", metav1.APIResource{Name: widgets, Kind: "Widget"})
	feeds, _ := feedsOn(t, api)
	for n := range 3 * listsAtOnce {
		startFeed(t, feeds, fmt.Sprintf("broken%d", n))
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
		if !f.first.TryAcquire(step.under) {
			t.Fatal("no place is free")
		}
		if got := f.worthFreeing(step.objects); got != step.want {
			t.Errorf("%d objects, with %d lists under way: %t, want %t", step.objects, step.under, got, step.want)
		}
		f.first.Release(step.under)
	}
}

func TestFeedsShareConnections(t *testing.T) {
	api := fakeapi.NewTypes(t)
	feeds, ways := feedsOn(t, api)
	var all []*Feed
	var stores []*kept
	for n := range feedsPerLink + 1 {
		name := fmt.Sprintf("t%d", n)
		api.AddType("example.com/v1", metav1.APIResource{Name: name, Kind: "T"})
		f, k := startFeed(t, feeds, name)
		all, stores = append(all, f), append(stores, k)
	}
	for _, k := range stores {
		k.shows(t)
	}
	if got := ways(); got != 2 {
		t.Errorf("%d ways to the API server, want 2", got)
	}
	for _, f := range all[:10] {
		f.Stop()
	}
	for n := range 10 {
		_, k := startFeed(t, feeds, fmt.Sprintf("t%d", n))
		k.shows(t)
	}
	if got := ways(); got != 2 {
		t.Errorf("%d ways after feeds came and went, want 2", got)
	}
}

func TestStoppedFeedsLeaveNothing(t *testing.T) {
	api := fakeapi.NewTypes(t)
	feeds, _ := feedsOn(t, api)
	round := func() {
		var running []*Feed
		for n := range 20 {
			name := fmt.Sprintf("t%d", n)
			api.AddType("example.com/v1", metav1.APIResource{Name: name, Kind: "T"})
			f, k := startFeed(t, feeds, name)
			k.shows(t)
			running = append(running, f)
		}
		for n, f := range running {
			f.Stop()
			api.RemoveType("example.com/v1", fmt.Sprintf("t%d", n))
		}
	}
	round()
	level := func() int { return runtime.NumGoroutine() }
	before := level()
	for range 3 {
		round()
	}
	fakeapi.Eventually(t, func() error {
		if now := level(); now > before+5 || api.OpenWatches() > 0 || len(feeds.feeds) > 0 {
			return fmt.Errorf("%d goroutines before and %d after, %d watches, %d feeds", before, now, api.OpenWatches(), len(feeds.feeds))
		}
		return nil
	})
}

// awaitWatch waits for a watch. client-go's fake sends no earlier deletions.
func awaitWatch(t *testing.T, client *fake.Clientset) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		if !slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "watch" }) {
			return errors.New("not watched")
		}
		return nil
	})
}

// Observers see the objects of all caches. A tombstone is no deletion event.
func TestObserversSeeCachedObjects(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	client := fake.NewClientset(node)
	c := New(client, Config{Name: t.Name()})
	if _, err := c.Nodes(); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	c.Observe(func(of Cached) Handler[metav1.Object] {
		told <- of.Resource.Resource + " " + of.Kind
		c.Alongside(func(ctx context.Context) {
			select {
			case <-of.Synced:
				told <- "synced"
			case <-ctx.Done():
			}
		})
		return Handler[metav1.Object]{
			Add:    func(o metav1.Object) { told <- "add " + o.GetName() },
			Update: func(_, o metav1.Object) { told <- "update " + o.GetName() },
			Delete: func(o metav1.Object) { told <- "delete " + o.GetName() },
			Missed: func(o metav1.Object) { told <- "missed " + o.GetName() },
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	c.Start(ctx)
	expect := func(want string) {
		t.Helper()
		if got := <-told; got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	expect("nodes Node")
	expect("add n")
	expect("synced")
	awaitWatch(t, client)
	if err := client.CoreV1().Nodes().Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("delete n")
	cancel()
	c.Shutdown()
	var all fanOut[*corev1.Node]
	all = append(all, Handler[*corev1.Node]{
		Delete: func(n *corev1.Node) { told <- "delete " + n.Name }, Missed: func(n *corev1.Node) { told <- "missed " + n.Name },
	}, Handler[*corev1.Node]{Delete: func(n *corev1.Node) { told <- "delete " + n.Name }})
	all.eventHandler(nil).OnDelete(cache.DeletedFinalStateUnknown{Obj: node})
	expect("missed n")
	expect("delete n")
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
