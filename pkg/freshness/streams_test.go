package freshness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var (
	podResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

func TestParseRequest(t *testing.T) {
	pods, leases := watchTarget{podResource, ""}, watchTarget{leaseResource, ""}
	for _, tt := range []struct {
		name, url string
		want      informerRequest
	}{
		{"resumed watch", "/api/v1/pods?watch=true&resourceVersion=7", informerRequest{pods, true, false, false}},
		{"older spelling of client-go", "/api/v1/pods?watch=1&resourceVersion=7", informerRequest{pods, true, false, false}},
		{"streaming list", "/api/v1/pods?watch=true&resourceVersion=7&sendInitialEvents=true", informerRequest{pods, true, true, false}},
		{"list", "/api/v1/pods?limit=500", informerRequest{pods, false, false, false}},
		{"next page of a list", "/api/v1/pods?limit=500&continue=x", informerRequest{pods, false, false, true}},
		{"group", "/apis/coordination.k8s.io/v1/leases?allowWatchBookmarks=true", informerRequest{leases, false, false, false}},
		{"one namespace", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", informerRequest{watchTarget{leaseResource, "kube-system"}, false, false, false}},
		{"namespaces", "/api/v1/namespaces", informerRequest{watchTarget{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, ""}, false, false, false}},
		{"behind a prefix", "/clusters/one/api/v1/pods", informerRequest{pods, false, false, false}},
		{"one object", "/api/v1/namespaces/kube-system", informerRequest{}},
		{"not a resource", "/healthz?watch=true", informerRequest{}},
		{"incomplete path", "/apis/apps?watch=true", informerRequest{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseRequest(httptest.NewRequest(http.MethodGet, "https://host"+tt.url, nil).URL); got != tt.want {
				t.Errorf("parseRequest(%s) = %+v; want %+v", tt.url, got, tt.want)
			}
		})
	}
}

// watchServer serves Leases to a reflector: the initial stream and later events. A frozen server accepts
// requests and delivers no event.
type watchServer struct {
	*httptest.Server
	lock    sync.Mutex
	asked   []string // resourceVersions of the watches, "initial" for streamed lists
	lists   int
	frozen  bool
	streams []chan string
	conns   map[string]bool
}

func (s *watchServer) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	events := make(chan string, 10)
	s.lock.Lock()
	s.conns[r.RemoteAddr] = true
	frozen := s.frozen
	switch {
	case query.Get("watch") != "true":
		s.lists++
	case query.Get("sendInitialEvents") == "true":
		s.asked = append(s.asked, "initial")
		events <- `{"type":"BOOKMARK","object":` + leaseJSON("", 5, `"k8s.io/initial-events-end":"true"`) + `}`
	default:
		s.asked = append(s.asked, query.Get("resourceVersion"))
	}
	s.streams = append(s.streams, events)
	s.lock.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !frozen {
		w.(http.Flusher).Flush()
	}
	for {
		select {
		case event := <-events:
			if !frozen {
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			}
		case <-r.Context().Done():
			return
		}
	}
}

// send sends an event down the newest stream.
func (s *watchServer) send(event string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.streams[len(s.streams)-1] <- event
}

func leaseJSON(name string, version int, annotations string) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d","annotations":{%s}}}`,
		name, version, annotations)
}

func (s *watchServer) requests() (asked []string, lists, conns int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]string(nil), s.asked...), s.lists, len(s.conns)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

// TestReopenedWatchGoesOnWhereItWas runs a real informer over HTTP/2: a watch closed by Streams must cost no
// list, and leave the connection only if that is silent.
func TestReopenedWatchGoesOnWhereItWas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		since time.Duration // Bytes after now - since count as activity.
		other bool          // another client receives data
		conns int
	}{
		{"others are heard on the connection", time.Hour, false, 1},
		{"all is silent", 0, false, 2},
		{"all on this link is silent", 0, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &watchServer{conns: map[string]bool{}}
			s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
			s.EnableHTTP2 = true
			s.StartTLS()
			t.Cleanup(func() { s.CloseClientConnections(); s.Close() }) // after the informer's
			transport := newTransport()
			informer := s.informer(t, transport)
			target := watchTarget{leaseResource, ""}
			eventually(t, "a stream that was heard", func() bool { a := transport.activityOf(target); return a.watch != nil && !a.lastByte.IsZero() })
			time.Sleep(2500 * time.Millisecond) // a reflector lists again after an empty watch of less than a second

			since := time.Now().Add(-tt.since)
			if tt.other {
				pods := get(t, newPool(t, transport, roundTripper(func(*http.Request) (*http.Response, error) { return respond(http.StatusOK, "{}"), nil })), plainWatch)
				_, _ = pods.Body.Read(make([]byte, 1))
				defer pods.Body.Close()
			}
			if !transport.reopenWatch(target, since) {
				t.Fatal("there was no watch to reopen")
			}
			eventually(t, "a second watch", func() bool { asked, _, _ := s.requests(); return len(asked) == 2 })
			if asked, lists, conns := s.requests(); asked[1] != "5" || lists != 0 || conns != tt.conns {
				t.Errorf("watches from %v, %d lists, %d connections; want the second from 5, none, %d", asked, lists, conns, tt.conns)
			}
			s.send(`{"type":"ADDED","object":` + leaseJSON("x", 6, "") + `}`)
			eventually(t, "the event of the new watch", func() bool { return informer.LastSyncResourceVersion() == "6" })
			before := transport.activityOf(target).lastByte
			s.send(`{"type":"BOOKMARK","object":` + leaseJSON("", 9, "") + `}`)
			eventually(t, "a bookmark to be heard", func() bool { return transport.activityOf(target).lastByte.After(before) })
		})
	}
}

// informer runs an informer of Leases on a client of transport until the test ends.
func (s *watchServer) informer(t *testing.T, transport *Transport) cache.SharedIndexInformer {
	t.Helper()
	cfg, http, err := transport.Client(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(cfg, http)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Coordination().V1().Leases().Informer()
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("cache did not sync")
	}
	return informer
}

func TestClosedWatchIsNotOpen(t *testing.T) {
	transport, target := newTransport(), watchTarget{podResource, ""}
	rt := newPool(t, transport, roundTripper(func(*http.Request) (*http.Response, error) { return respond(http.StatusOK, "x"), nil }))
	resp := get(t, rt, plainWatch)
	if transport.activityOf(target).watch == nil {
		t.Error("an open watch is not known")
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "x" {
		t.Errorf("body %q, %v of a watch that the server ended", body, err)
	}
	resp.Body.Close()
	if transport.reopenWatch(target, time.Now()) {
		t.Error("a watch was still known after it was closed")
	}
}

// A rejected watch is not open. The next watch takes another connection if the client receives nothing.
func TestReopenedWatchThatIsRefusedTakesAnotherConnection(t *testing.T) {
	target := watchTarget{podResource, ""}
	for _, tt := range []struct {
		name  string
		again func(*Transport)
		want  int // connections
	}{
		{"nothing is heard", func(s *Transport) { s.reopenWatch(target, time.Now().Add(time.Minute)) }, 2},
		{"something is heard", func(s *Transport) { s.reopenWatch(target, time.Now().Add(-time.Minute)) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transport := newTransport()
			conns := map[string]bool{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conns[r.RemoteAddr] = true
				if r.URL.Path == "/api/v1/nodes" {
					_, _ = io.WriteString(w, "{}")
					return
				}
				http.Error(w, "sick", http.StatusForbidden) // A 5xx response would be held.
			}))
			_, client, err := transport.Client(&rest.Config{Host: server.URL}, false)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, path := range []string{"/api/v1/nodes?watch=true&resourceVersion=7", "/api/v1/pods?watch=true&resourceVersion=7"} {
					resp, err := client.Get(server.URL + path)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				tt.again(transport)
			}
			server.Close()
			if len(conns) != tt.want {
				t.Errorf("%d connections, want %d", len(conns), tt.want)
			}
		})
	}
}
