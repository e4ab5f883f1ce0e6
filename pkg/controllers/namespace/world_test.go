package namespace

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
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
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func sumOf(t *testing.T, h prometheus.Histogram) float64 {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleSum()
}
