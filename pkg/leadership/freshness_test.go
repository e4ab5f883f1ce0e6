package leadership

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"minikcm/pkg/freshness"
)

// world is an API server with one resource, and a cache that follows the resource by a watch through a Transport.
type world struct {
	metadata.ResourceInterface // what Monitor does not use
	transport                  *freshness.Transport
	client                     http.RoundTripper // of the cache
	registry                   *prometheus.Registry

	lock    sync.Mutex
	version int                       // of the server
	newest  func() string             // instead of version
	objects []freshness.ObjectVersion // of the server
	err     error                     // of every list
	store   int                       // version of the cache
	cached  []freshness.ObjectVersion
	wrote   string // version of what we wrote last
	frozen  bool   // no watch delivers
	stuck   bool   // nor does a new one: the API server has stopped to watch
	heads   int    // limit=1 lists with a response
	lists   int    // of all
	asked   int    // watches
	pipe    *io.PipeWriter
	ended   error // of Run, once it has
	failing bool  // whole lists do
	listing bool  // its reflector does not watch
	dials   bool  // a new watch waits for a connection until its dialer gives up, after 30 s
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
	if w.newest != nil {
		list.ResourceVersion = w.newest()
	}
	for _, v := range w.objects {
		list.Items = append(list.Items, *partial(v))
	}
	return list, nil
}

func partial(v freshness.ObjectVersion) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion}}
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
	w.asked, w.pipe = w.asked+1, pipe
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
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://host"+path+"?watch=true&"+query, nil)
		resp, err := w.client.RoundTrip(req)
		if err != nil {
			time.Sleep(250 * time.Millisecond)
			continue
		}
		buf := make([]byte, 10)
		for err == nil {
			if _, err = resp.Body.Read(buf); err == nil {
				w.lock.Lock()
				if !w.stuck {
					w.store, w.cached = w.version, slices.Clone(w.objects)
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
	return w.asked, w.lists
}

func (w *world) set(change func(*world)) {
	w.lock.Lock()
	defer w.lock.Unlock()
	change(w)
}

// observeWorld runs Monitor on a world within a bubble.
func observeWorld(t *testing.T, e *Elector, w *world, resources ...freshness.Watched) *freshness.Monitor {
	t.Helper()
	w.registry = prometheus.NewRegistry()
	metrics := freshness.NewMetrics(w.registry)
	w.transport = freshness.NewTransport(realClock, metrics)
	w.client = w.newClient(t, w)
	l := freshness.New(freshness.Deps{Metadata: w, Transport: w.transport, StepDown: e.StepDown, Metrics: metrics, Clock: realClock}, resources)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	path := "/api/v1/pods"
	if resources[0].Resource != podResource {
		path = "/apis/coordination.k8s.io/v1/leases"
	}
	done.Go(func() { w.follow(ctx, path) })
	done.Go(func() { w.ended = l.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

func (w *world) newClient(t *testing.T, server http.RoundTripper) http.RoundTripper {
	t.Helper()
	_, client, err := w.transport.Client(&rest.Config{Host: "http://host", Transport: server}, false)
	if err != nil {
		t.Fatal(err)
	}
	return client.Transport
}

func (w *world) pods() freshness.Watched {
	return freshness.Watched{
		Resource: podResource,
		Expected: func() string { w.lock.Lock(); defer w.lock.Unlock(); return w.wrote },
		Version:  func() string { w.lock.Lock(); defer w.lock.Unlock(); return strconv.Itoa(w.store) },
		Objects:  func() []freshness.ObjectVersion { w.lock.Lock(); defer w.lock.Unlock(); return w.cached },
	}
}

// leases is the type of the Lease, as one process sees it.
func (w *world) leases(p *process) freshness.Watched {
	w.newest = func() string { p.lock.Lock(); defer p.lock.Unlock(); return p.seen }
	return freshness.Watched{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: p.cfg.Namespace, Impatience: 3 * p.cfg.RetryPeriod,
		Expected: func() string { p.lock.Lock(); defer p.lock.Unlock(); return p.seen },
		Version:  func() string { p.lock.Lock(); defer p.lock.Unlock(); return p.delivered },
		Objects:  func() []freshness.ObjectVersion { return nil },
	}
}

func newWorld() *world {
	start := []freshness.ObjectVersion{object("a", "1", "10")}
	return &world{version: 10, objects: start, store: 10, cached: start, wrote: "10"}
}

// run lets time pass; once a second something else is written to the server, and every bookmark the watch
// delivers.
func (w *world) run(d, bookmark time.Duration) {
	for i := time.Duration(1); i <= d/time.Second; i++ {
		w.set(func(w *world) { w.version++ })
		sleep(time.Second)
		if bookmark > 0 && i%(bookmark/time.Second) == 0 {
			w.tick()
		}
	}
}

func TestFrozenPodWatchIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.pods())
		w.run(10*time.Minute, time.Minute)
		watches, lists := w.requests()
		if err := l.Check(); err != nil || watches != 1 || lists != 0 {
			t.Fatalf("a healthy watch: %v, %d watches, %d whole lists; want nil, 1, 0", err, watches, lists)
		}
		w.set(func(w *world) {
			w.frozen = true
			w.objects = append(w.objects, object("b", "2", strconv.Itoa(w.version+1)))
		})
		frozen := time.Now()
		for len(l.Stale()) == 0 && time.Since(frozen) < time.Hour {
			watches, _ = w.requests()
			w.run(time.Second, 0)
		}
		if took := time.Since(frozen); took > 150*time.Second || took < 90*time.Second {
			t.Errorf("noticed after %v, want within 150s", took)
		}
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), "pods") {
			t.Errorf("readiness = %v, want it to name pods", err)
		}
		if watches < 2 {
			t.Error("the watch was not reopened first")
		}
		sleep(0)
		wantLeading(t, a, false)
		w.set(func(w *world) { w.frozen = false })
		w.tick()
		w.run(15*time.Second, 0)
		if err := l.Check(); err != nil {
			t.Errorf("readiness after the watch came back: %v", err)
		}
		w.run(5*time.Second, 0)
		wantLeading(t, a, true)
	})
}

// Three blind caches with activity: new connections, new streams, or bytes.
func TestBlindnessIsNoticedWhateverGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		after  time.Duration // the start
		blind  func(*world)
		period time.Duration // something happens so often
		every  func(*world)
	}{
		{"dials hang", 10 * time.Minute, func(w *world) { w.dials = true }, time.Hour, nil},
		{"a proxy ends idle streams", 10 * time.Minute, func(w *world) { w.frozen = true }, time.Minute, (*world).cut},
		{"a proxy ends idle streams soon", 10 * time.Minute, func(w *world) { w.frozen = true }, 20 * time.Second, (*world).cut},
		{"an API server whose watches are stuck goes on with bookmarks", 10 * time.Minute, func(w *world) { w.stuck = true }, time.Minute, (*world).tick},
		{"it is stuck soon after the cache was filled", 2 * time.Second, func(w *world) { w.stuck = true }, 20 * time.Second, (*world).tick},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				l := observeWorld(t, a.Elector, w, w.pods())
				w.run(tt.after, time.Minute)
				w.set(tt.blind)
				if tt.after > time.Minute { // to a cache that has just been filled the stream goes on
					w.cut()
				}
				w.set(func(w *world) { w.objects = append(w.objects, object("b", "2", strconv.Itoa(w.version+1))) })
				blind := time.Now()
				for len(l.Stale()) == 0 && time.Since(blind) < time.Hour {
					w.run(time.Second, 0)
					if tt.every != nil && time.Since(blind)%tt.period == 0 {
						tt.every(w)
					}
				}
				if took := time.Since(blind); took > 140*time.Second {
					t.Errorf("noticed after %v, want within 140s", took)
				}
				sleep(0)
				wantLeading(t, a, false)
			})
		})
	}
}

// A proxy that ends idle streams before a bookmark comes leaves a cache of a quiet type behind for ever. A
// reopened watch is short, and its bookmark shows that no event is missing.
func TestQuietTypeWithoutBookmarksIsNotListed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stuck bool // the API server has no bookmarks at all
		lists int  // at most, in an hour
	}{
		{"a proxy ends idle streams", false, 0},
		{"an API server without bookmarks", true, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				w.stuck = tt.stuck
				l := observeWorld(t, a.Elector, w, w.pods())
				for range 120 {
					w.run(30*time.Second, 0)
					w.cut()
					if got := l.Stale(); len(got) > 0 {
						t.Fatalf("stale: %v", got)
					}
				}
				if _, lists := w.requests(); lists > tt.lists {
					t.Errorf("%d whole lists in an hour, want at most %d", lists, tt.lists)
				}
				if got := len(a.spans()); got != 1 {
					t.Errorf("%d terms, want 1", got)
				}
			})
		})
	}
}

// Failed whole lists are retried more slowly than a type is checked.
func TestFailedWholeListsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		w.stuck, w.failing = true, true
		l := observeWorld(t, a.Elector, w, w.pods())
		w.run(time.Hour, 0)
		if _, lists := w.requests(); lists < 3 || lists > 12 {
			t.Errorf("%d whole lists in an hour, want some, and more and more seldom", lists)
		}
		if got := l.Stale(); len(got) > 0 {
			t.Errorf("stale: %v", got)
		}
	})
}

// A reflector that lists again with progress causes no step-down.
func TestSlowRelistIsNotStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.pods())
		w.run(10*time.Minute, time.Minute)
		w.set(func(w *world) {
			w.listing = true // its reflector does not watch
			w.objects = append(w.objects, object("b", "2", strconv.Itoa(w.version+1)))
		})
		w.cut()
		lists := w.newClient(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
		}))
		for range 16 { // 8 minutes
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host/api/v1/pods?limit=500", nil)
			if _, err := lists.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
			w.run(30*time.Second, 0)
			if got := l.Stale(); len(got) > 0 {
				t.Fatalf("stale while everything is listed: %v", got)
			}
		}
		begun := time.Now()
		for len(l.Stale()) == 0 && time.Since(begun) < time.Hour {
			w.run(time.Second, 0)
		}
		if took := time.Since(begun); took > 150*time.Second {
			t.Errorf("noticed %v after nobody answered the list, want within 150s", took)
		}
	})
}

// roundTrip returns responses.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The store lacks nothing, because what was written since is gone again: that the watch has not shown it is enough.
func TestFrozenPodWatchIsNoticedByOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.pods())
		write := func(w *world) { w.version++; w.wrote = strconv.Itoa(w.version) }
		for range 20 {
			w.set(write)
			w.run(30*time.Second, 15*time.Second)
		}
		if got := l.Stale(); len(got) > 0 {
			t.Fatalf("stale while the watch shows everything: %v", got)
		}
		w.set(func(w *world) { w.frozen = true })
		frozen := time.Now()
		for len(l.Stale()) == 0 && time.Since(frozen) < time.Hour {
			w.set(write)
			w.run(time.Second, 0)
		}
		if took := time.Since(frozen); took > 120*time.Second {
			t.Errorf("noticed after %v, want within 120s", took)
		}
		w.set(func(w *world) { w.frozen = false })
		w.tick()
		w.run(15*time.Second, 0)
		if got := l.Stale(); len(got) > 0 {
			t.Errorf("stale after the watch came back: %v", got)
		}
	})
}

// A store that misses events may look right for a moment, when all it misses has been undone.
func TestFrozenPodWatchIsNoticedThoughNothingIsMissedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.pods())
		w.run(10*time.Minute, time.Minute)
		w.set(func(w *world) { w.frozen = true })
		w.run(115*time.Second, 0)
		if watches, lists := w.requests(); watches == 1 || lists == 0 {
			t.Fatalf("%d watches and %d whole lists by now, want a reopened watch and a list that shows no difference", watches, lists)
		}
		missing := time.Now()
		w.set(func(w *world) { w.objects = append(w.objects, object("b", "2", strconv.Itoa(w.version+1))) })
		for len(l.Stale()) == 0 && time.Since(missing) < time.Hour {
			w.run(time.Second, 0)
		}
		if took := time.Since(missing); took > 100*time.Second {
			t.Errorf("noticed %v after something was missing, want within 100s", took)
		}
	})
}

func TestNotStale(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*world)
		bookmark time.Duration
	}{
		{"a quiet type without bookmarks", func(*world) {}, 0},
		{"an API server that does not answer", func(w *world) {
			w.err = errors.New("connection refused")
			w.frozen, w.objects = true, nil
		}, 0},
		{"a reopening helps", func(w *world) { w.objects = nil }, 100 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				l := observeWorld(t, a.Elector, w, w.pods())
				w.run(time.Minute, 30*time.Second)
				w.set(tt.change)
				for range 10 {
					w.run(100*time.Second, tt.bookmark)
					if got := l.Stale(); len(got) > 0 {
						t.Fatalf("stale: %v", got)
					}
				}
				wantLeading(t, a, true)
			})
		})
	}
}

func TestSilentTypeWhoseListsFail(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		frozen bool
		stale  bool
		behind bool // the metric shows it
	}{
		{"lists are forbidden and the watch is silent", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), true, true, true},
		{"lists are forbidden and the watch delivers", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), false, false, false},
		{"the API server does not answer", errors.New("connection refused"), true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				l := observeWorld(t, a.Elector, w, w.pods())
				w.run(10*time.Minute, time.Minute)
				w.set(func(w *world) { w.err, w.frozen = tt.err, tt.frozen })
				w.run(80*time.Second, 30*time.Second)
				if got := l.Stale(); len(got) > 0 {
					t.Errorf("stale after 80s: %v", got)
				}
				w.run(40*time.Second, 30*time.Second)
				if got := l.Stale(); len(got) > 0 != tt.stale {
					t.Errorf("stale after 2m: %q, want %v", got, tt.stale)
				}
				w.run(15*time.Minute, 30*time.Second)
				if got := w.gauge(t, "leadership_watch_lag_seconds"); got > 900 != tt.behind {
					t.Errorf("leadership_watch_lag_seconds = %v after 17m, want more than 900: %v", got, tt.behind)
				}
				w.set(func(w *world) { w.err, w.frozen = nil, false })
				w.run(time.Minute, 10*time.Second)
				if got := l.Stale(); len(got) > 0 {
					t.Errorf("stale after lists and the watch are back: %v", got)
				}
			})
		})
	}
}

// gauge returns the value of a metric that has one series.
func (w *world) gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
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
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				w.version = 1000
				observeWorld(t, a.Elector, w, w.pods())
				w.run(tt.runs, time.Second)
				if w.ended != nil {
					t.Fatalf("Run of a healthy one = %v", w.ended)
				}
				w.set(tt.back)
				w.run(31*time.Second, 0)
				if !errors.Is(w.ended, freshness.ErrSetBack) {
					t.Errorf("Run = %v, want it to have ended because of data that were set back", w.ended)
				}
			})
		})
	}
}

// An API server goes away while a write is not shown yet, and comes back; the watch takes a moment longer.
func TestOutageIsNotStaleness(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frozen time.Duration // before lists fail
	}{
		{"all at once", 40 * time.Second},
		{"after the watch was reopened", 100 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := start(t, &leaseServer{}, "a")
				w := newWorld()
				l := observeWorld(t, a.Elector, w, w.pods())
				w.run(10*time.Minute, 30*time.Second)
				w.set(func(w *world) { w.frozen = true })
				w.run(tt.frozen, 0)
				w.set(func(w *world) {
					w.version++
					w.wrote, w.err = strconv.Itoa(w.version), errors.New("connection refused")
				})
				w.run(5*time.Minute, 0)
				if got := l.Stale(); len(got) > 0 {
					t.Errorf("stale while the API server is away: %v", got)
				}
				w.set(func(w *world) { w.err, w.frozen, w.heads = nil, false, 0 })
				for answered := false; !answered; {
					w.run(time.Second, 0)
					w.set(func(w *world) { answered = w.heads > 0 })
				}
				w.run(8*time.Second, 0)
				w.tick()
				w.run(10*time.Minute, 30*time.Second)
				if got := l.Stale(); len(got) > 0 {
					t.Errorf("stale after the outage: %v", got)
				}
				if got := len(a.spans()); got != 1 {
					t.Errorf("%d terms, want 1", got)
				}
			})
		})
	}
}

func TestCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &leaseServer{}
		a, b := start(t, s, "a"), start(t, s, "b")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.leases(a))
		for range 60 {
			sleep(time.Second)
			w.tick()
		}
		if watches, _ := w.requests(); watches != 1 {
			t.Fatalf("%d watches of a healthy leader, want 1", watches)
		}
		a.conn.set(func(c *conn) { c.frozen = true })
		w.set(func(w *world) { w.frozen = true })
		frozen := time.Now()
		for !b.Status().Leading && time.Since(frozen) < time.Hour {
			sleep(time.Second)
		}
		if took := time.Since(frozen); took > 30*time.Second || took < 12*time.Second {
			t.Errorf("another leads %v after the freeze, want within 30s", took)
		}
		watches, _ := w.requests()
		if err := l.Check(); err == nil || watches < 2 {
			t.Errorf("readiness = %v after %d watches, want it to fail after a reopening", err, watches)
		}
		sleep(5 * time.Minute)
		wantLeading(t, b, true)
		if got := len(b.spans()); got != 1 {
			t.Errorf("%d terms of the other, want 1: none flaps", got)
		}
		a.conn.set(func(c *conn) { c.frozen = false })
		sleep(5 * time.Second)
		if err := l.Check(); err != nil {
			t.Errorf("readiness after the watch came back: %v", err)
		}
	})
}

func TestCanaryKeepsStillWhenTheServerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, &leaseServer{}, "a")
		w := newWorld()
		l := observeWorld(t, a.Elector, w, w.leases(a))
		sleep(time.Minute)
		a.conn.set(func(c *conn) { c.frozen, c.err = true, errors.New("connection refused") })
		w.set(func(w *world) { w.frozen = true })
		sleep(10 * time.Minute)
		if got := l.Stale(); len(got) != 0 {
			t.Errorf("stale: %v", got)
		}
	})
}

func object(name, uid, version string) freshness.ObjectVersion {
	return freshness.ObjectVersion{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}
}

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
