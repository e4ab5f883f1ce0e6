package garbagecollector

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
)

func TestMain(m *testing.M) { faket.Main(m) }

// cluster is an API server with a collector in fake time. Its types are ConfigMaps, ReplicaSets, nodes, which have an
// informer, widgets, which are custom objects, and things, which an aggregated API server serves.
type cluster struct {
	*fakeapi.Types
	*Controller
	t         *testing.T
	clientset *fakeapi.Clientset
	events    *record.FakeRecorder
	end, stop func()       // end the term and the process
	rejected  atomic.Int32 // log lines about rejected requests

	lock  sync.Mutex
	hooks map[string]*hook
}

type hook struct {
	calls   int
	respond func(ctx context.Context, r fakeapi.Request, nth int) error
}

var (
	things     = objectType{schema.GroupResource{Group: "far.example.com", Resource: "things"}, "Thing", false}
	widgetType = objectType{schema.GroupResource{Group: "example.com", Resource: "widgets"}, "Widget", true}

	errPolicy = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "d", errors.New("a policy keeps it"))
	errOutage = apierrors.NewInternalError(errors.New("failed calling webhook"))
	errStale  = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "d", errors.New("version"))
)

// versionFor returns the group and version of a type in tests.
func versionFor(typ objectType) string {
	return schema.GroupVersion{Group: typ.Group, Version: "v1"}.String()
}

// inCluster runs a test in a bubble of fake time.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			Types: fakeapi.NewLocalTypes(), t: t, events: record.NewFakeRecorder(10_000), hooks: map[string]*hook{},
			clientset: fakeapi.NewClientset(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}),
		}
		for _, typ := range []objectType{configMaps, replicaSets, things} {
			c.AddType(versionFor(typ), metav1.APIResource{Name: typ.Resource, Kind: typ.kind, Namespaced: true})
		}
		c.AddType("v1", metav1.APIResource{Name: "nodes", Kind: "Node"})
		c.AddType("apiregistration.k8s.io/v1", metav1.APIResource{Name: "apiservices", Kind: "APIService"})
		c.AddType("apiextensions.k8s.io/v1", metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"})
		c.Before(func(ctx context.Context, r fakeapi.Request) error {
			c.lock.Lock()
			for prefix, h := range c.hooks {
				if strings.HasPrefix(r.What, prefix) {
					h.calls++
					nth := h.calls
					c.lock.Unlock()
					return h.respond(ctx, r, nth)
				}
			}
			c.lock.Unlock()
			return nil
		})
		test(c)
	})
}

// inClusterNamed runs a subtest in a bubble of fake time.
func inClusterNamed(t *testing.T, name string, test func(*testing.T, *cluster)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inCluster(t, func(c *cluster) { test(t, c) }) })
}

// newTestController returns a controller on an API server, and its caches.
func newTestController(api *fakeapi.Types, client kubernetes.Interface, clk clock.WithTicker, cfg *Config, events record.EventRecorder) (*Controller, *caches.Caches) {
	store := caches.New(client, caches.Config{Name: "test", Direct: func() (*rest.Config, *http.Client, error) {
		return api.Config(), &http.Client{Transport: api.Config().Transport}, nil
	}})
	made := fakeapi.Must(Registration(cfg).New(controller.Base{
		REST: api.Config(), Caches: store, Clock: clk, Metrics: prometheus.NewRegistry(), Drain: time.Minute,
		Recorder: func(string) record.EventRecorder { return events },
	}))
	return made.(*Controller), store
}

// standBy starts the collector without a term. The result begins the term and waits until the watches are evidence.
func (c *cluster) standBy(edits ...func(*Config)) (begin func()) {
	c.t.Helper()
	cfg := DefaultConfig()
	for _, edit := range edits {
		edit(cfg)
	}
	made, store := newTestController(c.Types, c.clientset, clock.RealClock{}, cfg, c.events)
	c.Controller = made
	fakeapi.Must(store.Nodes())
	c.stop = sync.OnceFunc(fakeapi.FillCaches(c.t, store))
	c.t.Cleanup(c.stop)
	log := funcr.New(func(_, args string) { c.rejected.Add(int32(strings.Count(args, "Request was rejected"))) }, funcr.Options{})
	return func() {
		c.end = fakeapi.Term(c.t, func(ctx context.Context) error { return c.Run(klog.NewContext(ctx, log)) })
		c.t.Cleanup(func() {
			c.end()
			c.stop()
			time.Sleep(time.Hour) // requests in flight
		})
		time.Sleep(time.Minute)
	}
}

// start starts the collector with a term.
func (c *cluster) start(edits ...func(*Config)) {
	c.t.Helper()
	c.standBy(edits...)()
}

// define serves widgets, as a CustomResourceDefinition does.
func (c *cluster) define() {
	c.AddType("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	c.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: "widgets.example.com"})
	c.service("v1.example.com")
}

// undefine deletes the definition of widgets and the APIService.
func (c *cluster) undefine() {
	c.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	c.RemoveType("example.com/v1", "widgets")
	c.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
}

// service registers an APIService.
func (c *cluster) service(name string) {
	c.Put("apiregistration.k8s.io/v1", "apiservices", metav1.ObjectMeta{Name: name})
}

// on sets the response to requests that begin with prefix; nil lets the API server respond.
func (c *cluster) on(prefix string, respond func(ctx context.Context, r fakeapi.Request, nth int) error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.hooks[prefix] = (&hook{respond: respond}); respond == nil {
		delete(c.hooks, prefix)
	}
}

// fail makes requests that begin with prefix fail.
func (c *cluster) fail(prefix string, err error) {
	c.on(prefix, func(context.Context, fakeapi.Request, int) error { return err })
}

// slow delays requests that begin with prefix.
func (c *cluster) slow(prefix string, d time.Duration) {
	c.on(prefix, func(ctx context.Context, _ fakeapi.Request, _ int) error { return silentFor(ctx, d) })
}

// silentFor waits for the given time.
func silentFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (c *cluster) put(typ objectType, o *thing) { c.Put(versionFor(typ), typ.Resource, o.ObjectMeta) }

// dependent puts the ConfigMap d with references, or else with a reference to o, which was never created.
func (c *cluster) dependent(refs ...metav1.OwnerReference) {
	if len(refs) == 0 {
		refs = append(refs, ref("v1", "ConfigMap", "o", uid(1)))
	}
	c.put(configMaps, newThing("a", "d", uid(2)).owned(refs...))
}

// owner puts the ConfigMap o.
func (c *cluster) owner() { c.put(configMaps, newThing("a", "o", uid(1))) }

// remove deletes an object of namespace a.
func (c *cluster) remove(typ objectType, name string, policy metav1.DeletionPropagation) {
	c.DeleteObject(versionFor(typ), typ.Resource, "a", name, policy)
}

// object returns an object of namespace a, or nil.
func (c *cluster) object(typ objectType, name string) *metav1.PartialObjectMetadata {
	return c.GetObject(versionFor(typ), typ.Resource, "a", name)
}

// wait waits until a condition holds, and returns the time that this took.
func (c *cluster) wait(most time.Duration, what string, holds func() bool) time.Duration {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if synctest.Wait(); holds() {
			return time.Since(begin)
		}
		if time.Since(begin) > most {
			c.t.Fatalf("after %v: not %s", most, what)
		}
	}
}

// gone waits until an object of namespace a does not exist.
func (c *cluster) gone(typ objectType, name string, most time.Duration) time.Duration {
	c.t.Helper()
	return c.wait(most, name+" is gone", func() bool { return c.object(typ, name) == nil })
}

// orphaned waits until the ConfigMap o is gone, and requires that ConfigMaps stay without references.
func (c *cluster) orphaned(most time.Duration, names ...string) {
	c.t.Helper()
	c.gone(configMaps, "o", most)
	time.Sleep(time.Minute)
	for _, name := range names {
		if o := c.object(configMaps, name); o == nil || o.DeletionTimestamp != nil || len(o.OwnerReferences) > 0 {
			c.t.Errorf("orphan %s is %+v", name, o)
		}
	}
}

// blocked returns the number of blocked owners and objects by cause.
func (c *cluster) blocked() map[string]int {
	causes, _ := c.state.counts(time.Now())
	return causes
}

// holdSlots takes all slots for writes in a namespace.
func (c *cluster) holdSlots() (release func()) {
	var held []*writelimit.Write
	for {
		w := c.writer.slots.Acquire(c.t.Context(), cache.NewObjectName("a", string(uid(len(held)))), time.Now().Add(2*time.Second))
		if w == nil {
			break
		}
		held = append(held, w)
	}
	return func() {
		for _, w := range held {
			c.writer.slots.Release(w)
		}
	}
}
