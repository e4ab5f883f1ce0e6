package freshness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
)

// world is an API server with one resource, and a cache that follows the resource by a watch through a Transport.
type world struct {
	metadata.ResourceInterface // what Monitor does not use
	transport                  *Transport
	client                     http.RoundTripper // of the cache
	metrics                    *Metrics

	lock    sync.Mutex
	version int            // of the server
	objects ObjectVersions // of the server
	err     error          // of every list
	store   int            // version of the cache
	cached  ObjectVersions
	wrote   string // version of what we wrote last
	frozen  bool   // no watch delivers
	stuck   bool   // nor does a new one: the API server has stopped to watch
	heads   int    // limit=1 lists with a response
	lists   int    // of all
	watches int
	pipe    *io.PipeWriter
	ended   error // of Run, once it has
	failing bool  // whole lists do
	listing bool  // its reflector does not watch
	dials   bool  // a new watch waits for a connection until its dialer gives up, after 30 s
	late    bool  // no object is missing at first
	check   func()

	stepDowns int
	caughtUp  func() bool // of the last step-down
}

func (w *world) Resource(schema.GroupVersionResource) metadata.Getter { return w }
func (w *world) Namespace(string) metadata.ResourceInterface          { return w }

func (w *world) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	if o.Limit == 1 {
		w.heads++
	} else {
		if w.lists++; w.failing {
			return nil, errors.New("too many requests")
		}
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.version)}}
	for key, v := range w.objects {
		meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: v.UID, ResourceVersion: v.ResourceVersion}
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: meta})
	}
	return list, nil
}

// RoundTrip opens a watch.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	w.lock.Lock()
	dials := w.dials
	w.lock.Unlock()
	if dials {
		select {
		case <-time.After(30 * time.Second):
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	r, pipe := io.Pipe()
	context.AfterFunc(req.Context(), func() { pipe.CloseWithError(req.Context().Err()) })
	w.lock.Lock()
	defer w.lock.Unlock()
	w.watches, w.pipe = w.watches+1, pipe
	if seconds, _ := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); seconds > 0 {
		w.endSoon(pipe, time.Duration(seconds)*time.Second)
	}
	if req.URL.Query().Get("sendInitialEvents") == "true" {
		return &http.Response{StatusCode: 200, Body: struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(metav1.InitialEventsAnnotationKey), r), r}}, nil
	}
	return &http.Response{StatusCode: 200, Body: r}, nil
}

// endSoon ends a watch after a bookmark 2 s before, as an API server does.
func (w *world) endSoon(pipe *io.PipeWriter, timeout time.Duration) {
	time.AfterFunc(timeout-2*time.Second, func() {
		w.lock.Lock()
		delivers := !w.frozen && !w.stuck
		w.lock.Unlock()
		if delivers {
			_, _ = pipe.Write([]byte("x"))
		}
	})
	time.AfterFunc(timeout, func() {
		w.lock.Lock()
		defer w.lock.Unlock()
		if !w.frozen {
			_ = pipe.Close()
		}
	})
}

// follow is the reflector.
func (w *world) follow(ctx context.Context, path string) {
	for query := "sendInitialEvents=true"; ctx.Err() == nil; query = "resourceVersion=10" {
		w.lock.Lock()
		listing := w.listing
		w.lock.Unlock()
		if listing {
			time.Sleep(time.Second)
			continue
		}
		resp, err := w.client.RoundTrip(request(ctx, http.MethodGet, "http://host"+path+"?watch=true&"+query))
		if err != nil {
			time.Sleep(250 * time.Millisecond)
			continue
		}
		buf := make([]byte, 10)
		for err == nil {
			if _, err = resp.Body.Read(buf); err == nil {
				w.lock.Lock()
				if !w.stuck {
					w.store, w.cached = w.version, maps.Clone(w.objects)
				}
				w.lock.Unlock()
			}
		}
		resp.Body.Close()
	}
}

// tick delivers what there is, if the watch is not frozen; when it returns the cache has it.
func (w *world) tick() {
	w.lock.Lock()
	pipe := w.pipe
	if w.frozen {
		pipe = nil
	}
	w.lock.Unlock()
	if pipe != nil {
		pipe.Write([]byte("x"))
		synctest.Wait()
	}
}

// cut ends the watch that is open.
func (w *world) cut() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.pipe != nil {
		w.pipe.CloseWithError(io.ErrUnexpectedEOF)
	}
}

// requests counts the watches and the whole lists so far.
func (w *world) requests() (watches, lists int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.watches, w.lists
}

func (w *world) set(change func(*world)) {
	w.lock.Lock()
	defer w.lock.Unlock()
	change(w)
}

// observeWorld runs a Monitor on a world within a bubble.
func observeWorld(t *testing.T, w *world, watched WatchedCache) *Monitor {
	t.Helper()
	w.metrics, w.transport = NewMetrics(prometheus.NewRegistry()), newTransport()
	w.client = newPool(w.transport, w)
	stepDown := func(_ string, caughtUp func() bool) {
		w.set(func(w *world) { w.stepDowns, w.caughtUp = w.stepDowns+1, caughtUp })
	}
	m := New(Deps{Metadata: w, Transport: w.transport, StepDown: stepDown, Metrics: w.metrics, Clock: clock.RealClock{}}, []WatchedCache{watched})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.follow(ctx, "/api/v1/pods") })
	done.Go(func() { w.ended = m.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return m
}

func (w *world) pods() WatchedCache {
	return WatchedCache{
		Resource: podResource,
		Expected: func() string { w.lock.Lock(); defer w.lock.Unlock(); return w.wrote },
		Version:  func() string { w.lock.Lock(); defer w.lock.Unlock(); return strconv.Itoa(w.store) },
		Objects:  func() ObjectVersions { w.lock.Lock(); defer w.lock.Unlock(); return w.cached },
	}
}

func newWorld() *world {
	start := object("a", "1", "10")
	return &world{version: 10, objects: start, store: 10, cached: start, wrote: "10", check: func() {}}
}

// run advances time. The server gets another write each second, and the watch a bookmark each period.
func (w *world) run(d, bookmark time.Duration) {
	for i := time.Duration(1); i <= d/time.Second; i++ {
		w.set(func(w *world) { w.version++ })
		sleep(time.Second)
		if bookmark > 0 && i%(bookmark/time.Second) == 0 {
			w.tick()
		}
		w.check()
	}
}

// addPod adds a pod to the server.
func (w *world) addPod() {
	w.set(func(w *world) { w.objects = objects(w.objects, object("b", "2", strconv.Itoa(w.version+1))) })
}

// write makes a write of this process.
func (w *world) write() {
	w.set(func(w *world) { w.version++; w.wrote = strconv.Itoa(w.version) })
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	errAway      = errors.New("connection refused")
)

// A cache misses events while its connections, streams or bytes continue. The watch is reopened, and then the leader
// steps down until the cache is current.
func TestStaleCacheEndsTheTerm(t *testing.T) {
	frozen := func(w *world) { w.frozen = true }
	stuck := func(w *world) { w.stuck = true }
	for _, tt := range []struct {
		name   string
		after  time.Duration // the start
		change func(*world)
		period time.Duration
		each   func(*world)  // in each period
		within time.Duration // from the change
	}{
		{"silent watch of the own Lease", 10 * time.Minute, func(w *world) { w.frozen, w.late = true, true }, 2 * time.Second, (*world).write, 20 * time.Second},
		{"silent watch", 10 * time.Minute, frozen, time.Hour, nil, 150 * time.Second},
		{"silent watch, own writes that were undone", 10 * time.Minute, frozen, time.Second, (*world).write, 120 * time.Second},
		{"silent watch, first list shows no difference", 10 * time.Minute, func(w *world) { w.frozen, w.late = true, true }, 115 * time.Second, (*world).addPod, 215 * time.Second},
		{"silent watch, forbidden lists", 10 * time.Minute, func(w *world) { w.frozen, w.err = true, errForbidden }, time.Hour, nil, 200 * time.Second},
		{"silent watch, own write while whole lists fail", 10 * time.Minute, func(w *world) { w.frozen, w.late, w.failing = true, true, true }, time.Minute, failingListsThenWrite(), 32 * time.Minute},
		{"new connections hang", 10 * time.Minute, func(w *world) { w.dials = true; w.pipe.CloseWithError(io.ErrUnexpectedEOF) }, time.Hour, nil, 140 * time.Second},
		{"proxy ends idle streams", 10 * time.Minute, frozen, time.Minute, (*world).cut, 140 * time.Second},
		{"proxy ends idle streams soon", 10 * time.Minute, frozen, 20 * time.Second, (*world).cut, 140 * time.Second},
		{"API server without events sends bookmarks", 10 * time.Minute, stuck, time.Minute, (*world).tick, 140 * time.Second},
		{"API server without events from the start", 2 * time.Second, stuck, 20 * time.Second, (*world).tick, 140 * time.Second},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld()
			watched := w.pods()
			if strings.Contains(tt.name, "Lease") {
				watched.MaxSilence = 6 * time.Second
			}
			l := observeWorld(t, w, watched)
			w.run(tt.after, time.Minute)
			watches, lists := w.requests()
			if err := l.Check(); err != nil || watches != 1 || lists != 0 {
				t.Fatalf("healthy watch: %v, %d watches, %d whole lists; want nil, 1, 0", err, watches, lists)
			}
			if w.set(tt.change); !w.late {
				w.addPod()
			}
			changed := time.Now()
			for l.Check() == nil && time.Since(changed) < time.Hour {
				w.run(time.Second, 0)
				if tt.each != nil && time.Since(changed)%tt.period == 0 {
					tt.each(w)
				}
			}
			if took := time.Since(changed); took > tt.within || took < tt.within/2 {
				t.Errorf("noticed after %v, want between half of %v and all", took, tt.within)
			}
			fakeapi.WantPart(t, "readiness", fmt.Sprint(l.Check()), "pods")
			fakeapi.Want(t, "leadership_watch_stale", testutil.ToFloat64(w.metrics.stale), 1)
			if watches, _ := w.requests(); watches < 2 && !w.dials {
				t.Error("the watch was not reopened first")
			}
			if w.stepDowns != 1 || w.caughtUp() {
				t.Errorf("%d step-downs, caught up: %v; want one, false", w.stepDowns, w.caughtUp())
			}
			if w.run(listInterval+settleTime, 0); l.Check() == nil || w.stepDowns < 2 {
				t.Errorf("%d step-downs of a cache that stays stale, want another", w.stepDowns)
			}
			w.set(func(w *world) { w.frozen, w.stuck, w.dials, w.failing = false, false, false, false })
			w.run(time.Minute, 10*time.Second)
			fakeapi.WantError(t, "readiness after the watch came back", l.Check(), nil)
			fakeapi.Want(t, "caught up", w.caughtUp(), true)
			fakeapi.Want(t, "leadership_watch_stale after the watch came back", testutil.ToFloat64(w.metrics.stale), 0)
		})
	}
}

// failingListsThenWrite returns a function that is called each minute. At first a pod is missing from the cache, and
// the pauses between whole lists grow. After 30 minutes a write of this process is missing too.
func failingListsThenWrite() func(*world) {
	minutes := 0
	return func(w *world) {
		switch minutes++; minutes {
		case 1:
			w.addPod()
		case 30:
			w.write()
		}
	}
}

// A current cache causes no step-down, and whole lists are rare.
func TestCurrentCacheKeepsTheTerm(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lists  int // whole lists, at most
		script func(t *testing.T, w *world)
	}{
		{"quiet type without bookmarks", 6, func(_ *testing.T, w *world) { w.run(17*time.Minute, 0) }},
		{"reopening helps", 6, func(_ *testing.T, w *world) {
			w.set(func(w *world) { w.objects = nil })
			w.run(17*time.Minute, 100*time.Second)
		}},
		{"proxy ends idle streams of a quiet type", 0, func(_ *testing.T, w *world) {
			for range 120 {
				w.run(30*time.Second, 0)
				w.cut()
			}
		}},
		{"proxy ends idle streams, API server without bookmarks", 6, func(_ *testing.T, w *world) {
			w.set(func(w *world) { w.stuck = true })
			for range 120 {
				w.run(30*time.Second, 0)
				w.cut()
			}
		}},
		{"whole lists fail", 12, func(_ *testing.T, w *world) {
			w.set(func(w *world) { w.stuck, w.failing = true, true })
			w.run(time.Hour, 0)
		}},
		{"forbidden lists, watch delivers", 0, func(t *testing.T, w *world) {
			w.run(10*time.Minute, time.Minute)
			w.set(func(w *world) { w.err = errForbidden })
			w.run(17*time.Minute, 2*time.Minute) // the period of bookmarks if no client lists
		}},
		{"API server does not respond", 0, func(t *testing.T, w *world) {
			w.run(10*time.Minute, time.Minute)
			w.set(func(w *world) { w.err, w.frozen, w.objects = errAway, true, nil })
			w.run(17*time.Minute, 30*time.Second)
			if got := testutil.ToFloat64(w.metrics.lag); got < 900 {
				t.Errorf("leadership_watch_lag_seconds = %v after 17m, want more than 900", got)
			}
			w.set(func(w *world) { w.err, w.frozen = nil, false })
			w.run(time.Minute, 10*time.Second)
		}},
		{"outage while a write is not shown", 6, outage(40 * time.Second)},
		{"outage after the watch was reopened", 6, outage(100 * time.Second)},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld()
			l := observeWorld(t, w, w.pods())
			w.check = func() { fakeapi.NoError(t, l.Check()) }
			tt.script(t, w)
			if _, lists := w.requests(); lists > tt.lists {
				t.Errorf("%d whole lists, want at most %d", lists, tt.lists)
			}
			fakeapi.Want(t, "step-downs", w.stepDowns, 0)
			if got := testutil.ToFloat64(w.metrics.lag); got > 900 && !w.failing {
				t.Errorf("leadership_watch_lag_seconds = %v, want at most 900", got)
			}
		})
	}
}

// outage returns a script in which lists fail for five minutes while the watch does not show an own write. After the
// outage the watch is the last to recover.
func outage(frozen time.Duration) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		w.run(10*time.Minute, 30*time.Second)
		w.set(func(w *world) { w.frozen = true })
		w.write()
		w.run(frozen, 0)
		w.set(func(w *world) { w.err = errAway })
		w.run(5*time.Minute, 0)
		w.set(func(w *world) { w.err, w.frozen, w.heads = nil, false, 0 })
		for listed := false; !listed; {
			w.run(time.Second, 0)
			w.set(func(w *world) { listed = w.heads > 0 })
		}
		w.run(12*time.Second, 0)
		w.run(10*time.Minute, 30*time.Second)
	}
}

// A reflector that lists again with progress causes no step-down.
func TestSlowRelistIsNotStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := observeWorld(t, w, w.pods())
		w.run(10*time.Minute, time.Minute)
		w.set(func(w *world) { w.listing = true })
		w.addPod()
		w.cut()
		lists := newPool(w.transport, respondAlways(http.StatusTooManyRequests, ""))
		w.check = func() {
			if err := l.Check(); err != nil {
				t.Fatalf("during lists: %v", err)
			}
		}
		for range 16 { // 8 minutes
			get(t, lists, "http://host/api/v1/pods?limit=500")
			w.run(30*time.Second, 0)
		}
		w.check = func() {}
		begun := time.Now()
		for l.Check() == nil && time.Since(begun) < time.Hour {
			w.run(time.Second, 0)
		}
		if took := time.Since(begun); took > 150*time.Second {
			t.Errorf("noticed %v after the last response to a list, want within 150s", took)
		}
	})
}

func TestDataSetBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		runs time.Duration // before
		back func(*world)
	}{
		{"the cache waits for the future", 10 * time.Minute, func(w *world) { w.version -= 100 }},
		{"the cache was filled anew", 10 * time.Minute, func(w *world) { w.version -= 100; w.store = w.version }},
		{"before the first list", 2 * time.Second, func(w *world) { w.version -= 100 }},
		{"before the first list, and the cache was filled anew after a write", 2 * time.Second, func(w *world) {
			w.wrote = strconv.Itoa(w.version)
			w.version -= 100
			w.store = w.version
		}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld()
			w.version = 1000
			observeWorld(t, w, w.pods())
			w.run(tt.runs, time.Second)
			fakeapi.NoError(t, w.ended)
			w.set(tt.back)
			w.run(31*time.Second, 0)
			fakeapi.WantError(t, "result of Run", w.ended, ErrSetBack)
		})
	}
}

// sleep advances the time of the bubble and waits for all goroutines.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
