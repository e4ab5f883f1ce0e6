package namespace

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// bench is a controller on fakes, for errors that are hard to cause on a real API server.
type bench struct {
	*Controller
	client    *fakeapi.Script
	metadata  *metadatafake.FakeMetadataClient
	discovery *fakeapi.Discovery
	clock     *testclock.FakeClock
}

var epoch = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	fakeapi.NoError(t, metav1.AddMetaToScheme(scheme))
	all := []string{"delete", "deletecollection", "list", "watch"}
	b := &bench{
		client: fakeapi.NewScript(t, objects...), metadata: metadatafake.NewSimpleMetadataClient(scheme), discovery: &fakeapi.Discovery{},
		clock: testclock.NewFakeClock(epoch.Add(time.Hour)),
	}
	b.discovery.Groups = []*metav1.APIGroup{fakeapi.APIGroup("", "v1")}
	b.discovery.Lists = []*metav1.APIResourceList{fakeapi.CoreList(fakeapi.APIType("pods", all...), fakeapi.APIType("configmaps", all...))}
	b.respond("list", "*", &metav1.List{}, nil)
	b.build(t, Config{Workers: 1}, b.clock, b.metadata)
	b.beginTerm()
	for _, o := range objects {
		if ns, ok := o.(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
			b.firstSeen(ns.UID, b.clock.Now().Add(-minGrace))
		}
	}
	return b
}

// build makes the controller and returns its caches.
func (b *bench) build(t *testing.T, cfg Config, clk clock.WithTicker, content metadata.Interface) *caches.Caches {
	t.Helper()
	known := caches.New(b.client, caches.Config{Name: t.Name()})
	base := controller.Base{Client: b.client, Caches: known, Clock: clk, Metrics: prometheus.NewRegistry()}
	b.Controller = fakeapi.Must(newController(cfg, base, content, b.discovery))
	return known
}

// content returns the requests about content.
func (b *bench) content() []string { return fakeapi.RequestTexts(b.metadata.Actions()) }

func terminating(edits ...func(*corev1.Namespace)) *corev1.Namespace {
	deleted := metav1.NewTime(epoch)
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "test", UID: "uid-1", ResourceVersion: "1", DeletionTimestamp: &deleted},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	for _, edit := range edits {
		edit(ns)
	}
	return ns
}

// item returns a list of one object.
func item(kind, version string, finalizers ...string) *metav1.List {
	return &metav1.List{Items: []runtime.RawExtension{{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x", Finalizers: finalizers}}}}}
}

// deleting returns a list of one object that has been deleted.
func deleting(kind, version string, finalizers ...string) *metav1.List {
	list := item(kind, version, finalizers...)
	list.Items[0].Object.(*metav1.PartialObjectMetadata).DeletionTimestamp = &metav1.Time{Time: epoch}
	return list
}

// respond lets requests about content return an object or an error. Later calls come first.
func (b *bench) respond(verb, resource string, o runtime.Object, err error) {
	b.respondWhile(new(true), verb, resource, o, err)
}

func (b *bench) respondWhile(on *bool, verb, resource string, o runtime.Object, err error) {
	b.metadata.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return *on, o, err })
}

// serve adds types to the discovery.
func (b *bench) serve(gv string, types ...metav1.APIResource) {
	b.discovery.Lists = append(b.discovery.Lists, fakeapi.APIList(gv, types...))
}

func (b *bench) mustSync(t *testing.T) controller.Result {
	t.Helper()
	next, err := b.sync(t.Context(), "test")
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	return next
}

func (b *bench) finalized() bool { return b.client.Count(finalization) > 0 }

// blocker returns the message of the condition NamespaceDeletionBlocked in the last status write.
func (b *bench) blocker() (message string) {
	for _, a := range b.client.Actions() {
		if a.Matches("update", "namespaces/status") {
			for _, c := range a.(clienttesting.UpdateAction).GetObject().(*corev1.Namespace).Status.Conditions {
				if c.Type == deletionBlocked {
					message = c.Message
				}
			}
		}
	}
	return message
}

// mustFinalize syncs without delays. Only the last sync may find every type empty.
func (b *bench) mustFinalize(t *testing.T) {
	t.Helper()
	for range 3 {
		if !b.finalized() {
			b.mustSync(t)
		}
	}
	fakeapi.Want(t, "finalized", b.finalized(), true)
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	fakeapi.WantEqual(t, "texts", got, want)
}

func TestMain(m *testing.M) { faket.Main(m) }

// work runs the controller, with its caches and its loop, on the fakes of a bench until the end of a synctest bubble.
func (b *bench) work(t *testing.T) {
	t.Helper()
	t.Cleanup(fakeapi.FillCaches(t, b.build(t, Config{Workers: 10}, clock.RealClock{}, b.Controller.metadata)))
	t.Cleanup(fakeapi.Term(t, b.Run))
}

// namesake returns a terminating namespace with another name.
func namesake(name string) *corev1.Namespace {
	return terminating(func(ns *corev1.Namespace) { ns.Name, ns.UID, ns.ResourceVersion = name, types.UID(name), "" })
}

func stuck(n int) (namespaces []runtime.Object) {
	for i := range n {
		namespaces = append(namespaces, namesake(fmt.Sprint("stuck-", i)))
	}
	return namespaces
}

func (b *bench) sent() int { return len(b.client.Actions()) + len(b.metadata.Actions()) }

// The controller of their finalizers is gone. A thousand such namespaces must not keep the API server busy. When the
// finalizers are gone, the namespaces go without an event.
func TestStuckNamespacesCostFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 20
		b := newBench(t, stuck(count)...)
		var released atomic.Bool
		b.metadata.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !released.Load(), deleting("ConfigMap", "v1", "example.com/hold"), nil
		})
		b.work(t)
		// The first sync sends five requests, the conditions included; each of the others four.
		for _, tt := range []struct {
			after, during time.Duration
			syncs         int
		}{
			{0, time.Minute, 24},
			{time.Hour, 10 * time.Minute, 20},
		} {
			time.Sleep(tt.after)
			before := b.sent()
			time.Sleep(tt.during)
			if each := float64(b.sent()-before) / count; each > 4*float64(tt.syncs)+2 {
				t.Errorf("%.1f requests for each stuck namespace during %v after %v, want %d syncs of 4 requests", each, tt.during, tt.after, tt.syncs)
			}
			synctest.Wait()
			if n := b.discovery.Count(); tt.after == 0 && n > 10 {
				t.Errorf("%d discoveries in the first minute, want namespaces to share discoveries", n)
			}
		}
		fakeapi.Want(t, "series of blocked namespaces", testutil.CollectAndCount(b.metrics.blocked), count)
		released.Store(true)
		time.Sleep(31 * time.Second)
		fakeapi.Want(t, "series without namespaces", testutil.CollectAndCount(b.metrics.blocked), 0)
		fakeapi.Want(t, "finalized namespaces", b.client.Count(finalization), count)
	})
}

// hanging lets lists of the group time out.
type hanging struct {
	metadata.Interface
	group string
}

func (h hanging) Resource(r schema.GroupVersionResource) metadata.Getter {
	if r.Group != h.group {
		return h.Interface.Resource(r)
	}
	return pagedClient{list: func(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// Many namespaces wait for an API that never responds. The pods of another namespace must not wait.
func TestSilentAPIBlocksNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = "late"
		b := newBench(t, stuck(200)...)
		b.serve("a.io/v1", fakeapi.APIType("hang", "delete", "list"))
		var lookedAt time.Time
		b.metadata.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == late && lookedAt.IsZero() {
				lookedAt = time.Now()
			}
			return false, nil, nil
		})
		b.Controller.metadata = hanging{b.metadata, "a.io"}
		t.Cleanup(func() { fakeapi.Want(t, "series after the term", testutil.CollectAndCount(b.metrics.blocked), 0) })
		b.work(t)
		time.Sleep(11 * time.Second)
		begin := time.Now()
		fakeapi.Must(b.client.CoreV1().Namespaces().Create(t.Context(), namesake(late), metav1.CreateOptions{}))
		time.Sleep(time.Second)
		before := b.sent()
		time.Sleep(24 * time.Second)
		if got := b.sent() - before; got > 2400 {
			t.Errorf("%d requests in 24 s, want at most 100 per second", got)
		}
		time.Sleep(3 * time.Minute)
		if lookedAt.IsZero() || lookedAt.Sub(begin) > time.Second {
			t.Errorf("looked at %v after the deletion", lookedAt.Sub(begin))
		}
	})
}

// A sync that gets no slot ends before the sync counts as stuck, however many types there are.
func TestSyncWithoutASlotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, terminating())
		b.Clock = clock.RealClock{}
		b.beginTerm()
		for i := range 50 {
			b.serve("a.io/v1", fakeapi.APIType(fmt.Sprint("type", i), "delete", "list"))
		}
		b.deletions.Store(types.UID("uid-1"), time.Now().Add(-time.Second))
		api := schema.GroupVersion{Group: "a.io", Version: "v1"}
		b.unresponsive.record(api, "other", true)
		begin := time.Now()
		b.discovery.Called = func() { b.slots.TryAcquire(requestsAtOnce) } // other namespaces take all slots
		if _, err := b.sync(t.Context(), "test"); !errors.Is(err, errNoSlot) || time.Since(begin) > 30*time.Second {
			t.Errorf("%v after %v, want no slot after 25 s", err, time.Since(begin))
		}
		fakeapi.Want(t, "conditions are written", b.blocker() != "", true)
		_, paused := b.unresponsive.pauses[api]
		fakeapi.Want(t, "paused after a sync without a request", paused, true)
	})
}

// The deletion of the last pod ends the wait between two syncs.
func TestDeletionOfTheLastPodEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x"}}
		b := newBench(t, terminating(), pod)
		var gone atomic.Bool
		b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !gone.Load(), item("Pod", "v1"), nil
		})
		b.work(t)
		time.Sleep(time.Minute)
		gone.Store(true)
		fakeapi.NoError(t, b.client.CoreV1().Pods("test").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		time.Sleep(100 * time.Millisecond)
		fakeapi.Want(t, "finalized 100 ms after the last pod was gone", b.finalized(), true)
	})
}
