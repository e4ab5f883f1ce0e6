package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
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
	client    *fake.Clientset
	metadata  *metadatafake.FakeMetadataClient
	discovery *fakeDiscovery
	clock     *testclock.FakeClock
}

type fakeDiscovery struct {
	fakeapi.Readyz
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	err    error
	asked  atomic.Int32
	ask    func() // may be nil
}

func (d *fakeDiscovery) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.asked.Add(1)
	if d.ask != nil {
		d.ask()
	}
	return d.groups, d.lists, d.err
}

func group(name string, versions ...string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: name, Version: v}
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

var epoch = time.Unix(1e9, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func served(gv string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: gv, APIResources: resources}
}

func typ(name string, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Namespaced: true, Verbs: verbs}
}

// coreList returns the core types of every complete discovery, with further types.
func coreList(types ...metav1.APIResource) *metav1.APIResourceList {
	return served("v1", append(types, metav1.APIResource{Name: "namespaces", Verbs: []string{"delete", "list"}})...)
}

func newBench(t *testing.T, namespaces ...runtime.Object) *bench {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	fakeapi.NoError(t, metav1.AddMetaToScheme(scheme))
	all := []string{"delete", "deletecollection", "list", "watch"}
	b := &bench{
		client: fake.NewClientset(namespaces...), metadata: metadatafake.NewSimpleMetadataClient(scheme),
		discovery: &fakeDiscovery{
			groups: []*metav1.APIGroup{group("", "v1")},
			lists:  []*metav1.APIResourceList{coreList(typ("pods", all...), typ("configmaps", all...))},
		},
		clock: testclock.NewFakeClock(epoch.Add(time.Hour)),
	}
	// Lists are empty by default. Later reactors come first.
	b.metadata.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{}, nil
	})
	c := &Controller{
		cfg: Config{Workers: 1}, metrics: newMetrics(prometheus.NewRegistry()), slots: semaphore.NewWeighted(requestsAtOnce),
		Base: controller.Base{Client: b.client, Clock: b.clock}, metadata: b.metadata, discovery: b.discovery,
	}
	c.beginTerm()
	for _, o := range namespaces {
		if ns := o.(*corev1.Namespace); ns.DeletionTimestamp != nil {
			c.firstSeen(ns.UID, b.clock.Now().Add(-minGrace))
		}
	}
	b.Controller = c
	b.client.ClearActions()
	return b
}

// requests returns the calls as verb, resource and subresource.
func requests(actions ...[]clienttesting.Action) []string {
	var texts []string
	for _, list := range actions {
		for _, a := range list {
			text := a.GetVerb() + " " + a.GetResource().Resource
			if a.GetSubresource() != "" {
				text += "/" + a.GetSubresource()
			}
			texts = append(texts, text)
		}
	}
	return texts
}

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
	b.discovery.lists = append(b.discovery.lists, served(gv, types...))
}

func (b *bench) mustSync(t *testing.T) controller.Result {
	t.Helper()
	next, err := b.sync(t.Context(), "test")
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	return next
}

func (b *bench) finalized() bool {
	return slices.Contains(requests(b.client.Actions()), "create namespaces/finalize")
}

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
	if !b.finalized() {
		t.Errorf("not finalized: %v", requests(b.client.Actions()))
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	fakeapi.WantEqual(t, "strings", got, want)
}

func sumOf(t *testing.T, h prometheus.Histogram) float64 {
	t.Helper()
	var m dto.Metric
	fakeapi.NoError(t, h.Write(&m))
	return m.GetHistogram().GetSampleSum()
}

func TestMain(m *testing.M) { faket.Main(m) }

// work runs the controller, with its caches and its loop, on the fakes of a bench in a synctest bubble. Call
// stop before the bubble ends.
func (b *bench) work(t *testing.T) (stop func()) {
	t.Helper()
	known := caches.New(b.client, caches.Config{Name: t.Name()})
	base := controller.Base{Client: b.client, Caches: known, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry()}
	c, err := newController(Config{Workers: 10}, base, b.Controller.metadata, b.discovery)
	fakeapi.NoError(t, err)
	stopCaches := fakeapi.FillCaches(t, known)
	end := fakeapi.Term(t, c.Run)
	return func() {
		end()
		stopCaches()
	}
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
		stop := b.work(t)
		defer stop()
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
			if n := int(b.discovery.asked.Load()); tt.after == 0 && n > count {
				t.Errorf("%d discoveries in the first minute, want namespaces to share discoveries", n)
			}
		}
		released.Store(true)
		time.Sleep(31 * time.Second)
		fakeapi.Want(t, "finalized namespaces", len(slices.DeleteFunc(requests(b.client.Actions()), func(r string) bool { return r != finalization })), count)
	})
}

// hanging lets lists of the group time out.
type hanging struct {
	metadata.Interface
	group string
}

func (h hanging) Resource(r schema.GroupVersionResource) metadata.Getter {
	if r.Group == h.group {
		return hangingType{}
	}
	return h.Interface.Resource(r)
}

type hangingType struct{ metadata.ResourceInterface }

func (h hangingType) Namespace(string) metadata.ResourceInterface { return h }

func (hangingType) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Many namespaces wait for an API that never responds. The pods of another namespace must not wait.
func TestSilentAPIBlocksNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = "late"
		b := newBench(t, stuck(200)...)
		b.serve("a.io/v1", typ("hang", "delete", "list"))
		var lookedAt time.Time
		b.metadata.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == late && lookedAt.IsZero() {
				lookedAt = time.Now()
			}
			return false, nil, nil
		})
		b.Controller.metadata = hanging{b.metadata, "a.io"}
		stop := b.work(t)
		defer stop()
		time.Sleep(11 * time.Second)
		begin := time.Now()
		if _, err := b.client.CoreV1().Namespaces().Create(t.Context(), namesake(late), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
			b.serve("a.io/v1", typ(fmt.Sprint("type", i), "delete", "list"))
		}
		b.deletions.Store(types.UID("uid-1"), time.Now().Add(-time.Second))
		api := schema.GroupVersion{Group: "a.io", Version: "v1"}
		b.unresponsive.record(api, "other", true)
		begin := time.Now()
		b.discovery.ask = func() { b.slots.TryAcquire(requestsAtOnce) } // other namespaces take all slots
		if _, err := b.sync(t.Context(), "test"); !errors.Is(err, errNoSlot) || time.Since(begin) > 90*time.Second {
			t.Errorf("%v after %v, want no slot after a minute", err, time.Since(begin))
		}
		if _, paused := b.unresponsive.pauses[api]; !paused {
			t.Error("a sync without a request ended the pause of the API")
		}
	})
}

// The deletion of the last pod ends the wait between two syncs.
func TestDeletionOfTheLastPodEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: "x"}}
		b := newBench(t, terminating())
		fakeapi.NoError(t, b.client.Tracker().Add(pod))
		var gone atomic.Bool
		b.metadata.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !gone.Load(), item("Pod", "v1"), nil
		})
		stop := b.work(t)
		defer stop()
		time.Sleep(time.Minute)
		gone.Store(true)
		fakeapi.NoError(t, b.client.CoreV1().Pods("test").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		time.Sleep(100 * time.Millisecond)
		if !b.finalized() {
			t.Error("not finalized 100 ms after the last pod was gone")
		}
	})
}
