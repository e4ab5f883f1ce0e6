package freshness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/internal/timing"
)

// watchServer serves watches of pods and Leases over HTTP/2, on a network in memory. Pods get a bookmark each second.
// A Lease is written when the caches are filled.
type watchServer struct {
	*httptest.Server
	network chan net.Conn
	closing sync.Once
	silent  func(conn, watch int, resource string) bool // after the write; counted from 1
	rejects bool                                        // after the write, watches on connection 1 end and are rejected

	lock    sync.Mutex
	written bool
	conns   int
	watched []string // resourceVersions of the watches of Leases, "initial" for a streaming list
	lists   int      // of Leases
}

type connKey struct{}

func newWatchServer(t *testing.T, silent func(conn, watch int, resource string) bool) *watchServer {
	s := &watchServer{network: make(chan net.Conn), silent: silent, rejects: silent == nil}
	s.Server = httptest.NewUnstartedServer(s)
	_ = s.Listener.Close()
	s.Listener = s
	s.EnableHTTP2 = true
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.conns++
		return context.WithValue(ctx, connKey{}, s.conns)
	}
	s.StartTLS()
	t.Cleanup(s.Server.Close)
	return s
}

// Accept implements net.Listener.
func (s *watchServer) Accept() (net.Conn, error) {
	if conn, ok := <-s.network; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (s *watchServer) Close() error {
	s.closing.Do(func() { close(s.network) })
	return nil
}

// Addr implements net.Listener.
func (s *watchServer) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// client returns a client of the transport with connections of its own.
func (s *watchServer) client(t *testing.T, transport *Transport) kubernetes.Interface {
	t.Helper()
	dialer := connrotation.NewDialer(func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s.network <- server
		return client, nil
	})
	t.Cleanup(dialer.CloseAll)
	cfg := &rest.Config{Host: s.URL, Dial: dialer.DialContext, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	pool := &connectionPool{Transport: transport, next: fakeapi.Must(rest.TransportFor(cfg)), dialer: dialer, connecting: semaphore.NewWeighted(1)}
	return fakeapi.Must(kubernetes.NewForConfigAndClient(cfg, &http.Client{Transport: pool}))
}

func (s *watchServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query, resource, conn := r.URL.Query(), path.Base(r.URL.Path), r.Context().Value(connKey{}).(int)
	s.lock.Lock()
	written, streams := s.written, query.Get("sendInitialEvents") == "true"
	switch {
	case resource != "leases":
	case query.Get("watch") == "":
		s.lists++
	case streams:
		s.watched = append(s.watched, "initial")
	default:
		s.watched = append(s.watched, query.Get("resourceVersion"))
	}
	watch := len(s.watched)
	s.lock.Unlock()
	if query.Get("watch") == "" || written && s.rejects && conn == 1 {
		http.Error(w, "sick", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(event string) {
		fmt.Fprint(w, event)
		w.(http.Flusher).Flush()
	}
	if send(""); streams {
		send(event("BOOKMARK", resource, "", 5, `"k8s.io/initial-events-end":"true"`))
	}
	timeout, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	for delivered := false; timeout > 0 && timing.Sleep(r.Context(), clock.RealClock{}, time.Second); timeout-- {
		s.lock.Lock()
		written = s.written
		s.lock.Unlock()
		switch {
		case written && s.rejects && conn == 1:
			return
		case written && !s.rejects && s.silent(conn, watch, resource):
		case resource == "pods":
			send(event("BOOKMARK", resource, "", 5, ""))
		case written && !delivered:
			delivered = true
			send(event("ADDED", resource, "x", 6, ""))
		}
	}
}

// event returns a watch event in JSON.
func event(kind, resource, name string, version int, annotations string) string {
	object := map[string]string{"pods": `"kind":"Pod","apiVersion":"v1"`, "leases": `"kind":"Lease","apiVersion":"coordination.k8s.io/v1"`}[resource]
	return fmt.Sprintf(`{"type":%q,"object":{%s,"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d","annotations":{%s}}}}`,
		kind, object, name, version, annotations)
}

// The monitor reopens a watch that does not deliver a known version, and the informer resumes the watch without a list.
// The watch keeps its connection if another watch of the client receives data, and only as long as that helps.
func TestSilentWatchIsResumed(t *testing.T) {
	for _, tt := range []struct {
		name       string
		silent     func(conn, watch int, resource string) bool // nil: the API server rejects watches
		elsewhere  bool                                        // another client watches the pods
		conns      int
		reopenings float64
		stepDowns  int
	}{
		{"silent stream", func(_, watch int, resource string) bool { return resource == "leases" && watch == 1 }, false, 1, 1, 0},
		{"silent connection", func(conn, _ int, _ string) bool { return conn == 1 }, false, 2, 1, 0},
		{"silent connection, another client receives data", func(conn, _ int, _ string) bool { return conn == 1 }, true, 3, 1, 0},
		{"API server without events of the type", func(conn, _ int, resource string) bool { return conn == 1 && resource == "leases" }, false, 2, 2, 1},
		{"API server rejects watches", nil, false, 2, 0, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			s, transport := newWatchServer(t, tt.silent), newTransport()
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			inform := func(client kubernetes.Interface, resource schema.GroupVersionResource) cache.SharedIndexInformer {
				informer := fakeapi.Must(informers.NewSharedInformerFactory(client, 0).ForResource(resource)).Informer()
				running.Go(func() { informer.RunWithContext(ctx) })
				cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
				return informer
			}
			client := s.client(t, transport)
			leases := inform(client, leaseResource)
			if tt.elsewhere {
				client = s.client(t, transport)
			}
			inform(client, podResource)
			api := &world{version: 6, objects: object("x", "u", "6")}
			metrics, stepDowns := NewMetrics(prometheus.NewRegistry()), 0
			monitor := New(Deps{Metadata: api, Transport: transport, Metrics: metrics, Clock: clock.RealClock{},
				StepDown: func(string, func() bool) { stepDowns++ }}, []WatchedCache{{
				Resource: leaseResource, Version: leases.LastSyncResourceVersion, Expected: func() string { return "" },
				Objects: func() ObjectVersions {
					if len(leases.GetStore().List()) == 0 {
						return nil
					}
					return api.objects
				},
			}})
			running.Go(func() { _ = monitor.Run(ctx) })
			s.lock.Lock()
			s.written = true
			s.lock.Unlock()
			written := time.Now()
			for leases.LastSyncResourceVersion() != "6" && time.Since(written) < time.Hour {
				sleep(time.Second)
			}
			if took := time.Since(written); took > 150*time.Second {
				t.Errorf("resumed after %v, want 150s at most", took)
			}
			s.lock.Lock()
			watched, lists, conns := slices.Compact(s.watched), s.lists, s.conns
			s.lock.Unlock()
			if lists > 0 || !slices.Equal(watched, []string{"initial", "5"}) || conns != tt.conns || stepDowns != tt.stepDowns {
				t.Errorf("watches from %v, %d lists, %d connections, %d step-downs; want initial and 5, none, %d, %d",
					watched, lists, conns, stepDowns, tt.conns, tt.stepDowns)
			}
			if sleep(settleTime); monitor.Check() != nil {
				t.Error(monitor.Check())
			}
			fakeapi.Want(t, "leadership_watch_reopenings_total", testutil.ToFloat64(metrics.reopened.WithLabelValues("leases", "")), tt.reopenings)
		})
	}
}
