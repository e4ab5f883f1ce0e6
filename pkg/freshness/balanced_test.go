package freshness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// balanced holds two API servers behind a load balancer that keeps the first connection with the sick server and
// assigns later connections to the healthy server. A Lease is written once the caches are filled; the healthy server
// delivers the Lease to each watch.
type balanced struct {
	filled  atomic.Bool
	refuses bool // The sick server returns 503 and ends its streams. Otherwise its streams deliver pods, and no Leases.
}

func (b *balanced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sick := r.Context().Value(connKey{}) == int64(1)
	flush := func(event string) {
		fmt.Fprintln(w, event)
		w.(http.Flusher).Flush()
	}
	w.Header().Set("Content-Type", "application/json")
	if sick && b.refuses && b.filled.Load() {
		http.Error(w, "sick", http.StatusServiceUnavailable)
		return
	}
	pods := strings.HasSuffix(r.URL.Path, "/pods")
	bookmark := `{"type":"BOOKMARK","object":` + leaseJSON("", 5, `"k8s.io/initial-events-end":"true"`) + `}`
	if pods {
		bookmark = strings.NewReplacer("Lease", "Pod", "coordination.k8s.io/v1", "v1").Replace(bookmark)
	}
	if r.URL.Query().Get("watch") == "" { // A reflector may list again after a short watch.
		switch {
		case pods:
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"}}`)
		case sick:
			fmt.Fprint(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"5"}}`)
		default:
			fmt.Fprint(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"6"},"items":[`+leaseJSON("x", 6, "")+`]}`)
		}
		return
	}
	switch {
	case r.URL.Query().Get("sendInitialEvents") == "true":
		flush(bookmark)
	case !sick && !pods:
		flush(`{"type":"ADDED","object":` + leaseJSON("x", 6, "") + `}`)
	default:
		w.(http.Flusher).Flush()
	}
	for r.Context().Err() == nil && !(sick && b.refuses && b.filled.Load()) {
		if pods {
			flush(bookmark)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type connKey struct{}

// newest lists the Lease.
type newest struct{ metadata.ResourceInterface }

func (n newest) Resource(schema.GroupVersionResource) metadata.Getter { return n }
func (n newest) Namespace(string) metadata.ResourceInterface          { return n }

func (newest) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	lease := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "x", UID: "u", ResourceVersion: "6"}}
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "6"}, Items: []metav1.PartialObjectMetadata{lease}}, nil
}

// A type that one API server does not deliver is watched on another connection, whether the server rejects
// the watches or delivers other types.
func TestMonitorLeavesAServerThatShowsNothing(t *testing.T) {
	for name, refuses := range map[string]bool{"it refuses watches": true, "one type is stuck, and others go on": false} {
		t.Run(name, func(t *testing.T) {
			b := &balanced{refuses: refuses}
			server := httptest.NewUnstartedServer(b)
			var conns atomic.Int64
			server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, conns.Add(1))
			}
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })

			clk := clocktesting.NewFakeClock(time.Now())
			transport := NewTransport(clk)
			cfg, client, err := transport.Client(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
				ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, false)
			if err != nil {
				t.Fatal(err)
			}
			set, err := kubernetes.NewForConfigAndClient(cfg, client)
			if err != nil {
				t.Fatal(err)
			}
			factory := informers.NewSharedInformerFactory(set, 0)
			ctx, cancel := context.WithCancel(context.Background())
			go func() { // A hundred times as fast as the real clock.
				for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
					clk.Step(500 * time.Millisecond)
				}
			}()
			defer factory.Shutdown()
			defer cancel()
			pods := factory.Core().V1().Pods().Informer()
			factory.StartWithContext(ctx)
			cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) // so that there is a connection for both
			leases := factory.Coordination().V1().Leases().Informer()
			factory.StartWithContext(ctx)
			cache.WaitForCacheSync(ctx.Done(), leases.HasSynced)
			b.filled.Store(true)

			expected := func() string { return "" }
			watched := Watched{Resource: leaseResource, Version: leases.LastSyncResourceVersion, Expected: expected, Objects: func() (all []ObjectVersion) {
				for _, item := range leases.GetStore().List() {
					lease := item.(*coordinationv1.Lease)
					all = append(all, ObjectVersion{lease.Namespace, lease.Name, lease.UID, lease.ResourceVersion})
				}
				return all
			}}
			stepDown := func(string, func() bool) {}
			monitor := New(Deps{Metadata: newest{}, Transport: transport, StepDown: stepDown, Metrics: NewMetrics(prometheus.NewRegistry()), Clock: clk}, []Watched{watched})
			done := make(chan error)
			go func() { done <- monitor.Run(ctx) }()
			eventually(t, "what the healthy server shows", func() bool { return len(leases.GetStore().List()) == 1 })
			eventually(t, "a cache that is current", func() bool { return monitor.Check() == nil })
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
