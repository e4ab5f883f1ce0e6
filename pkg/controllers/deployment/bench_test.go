package deployment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/selectors"
)

var setResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}

// bench runs one sync against a client with prepared results. The caches are empty, and the test provides the
// ReplicaSets.
type bench struct {
	*Controller
	syncState
	client *fake.Clientset
	events *record.FakeRecorder
	clock  *testingclock.FakeClock
}

func newBench(t *testing.T, d *appsv1.Deployment, sets ...*appsv1.ReplicaSet) *bench {
	t.Helper()
	client := fake.NewClientset()
	for _, object := range append([]runtime.Object{d.DeepCopy()}, objects(sets)...) {
		if err := client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	events, clk := record.NewFakeRecorder(1000), testingclock.NewFakeClock(now)
	deps := depsOf(t, caches.New(client, caches.Config{Name: t.Name()}), client, clk)
	deps.Recorder = events
	c, err := New(Config{TerminatingReplicas: true}, deps)
	if err != nil {
		t.Fatal(err)
	}
	c.baseline.Read(t.Context(), func(context.Context) (controller.Versions, error) { return nil, nil })
	selector, err := selectors.ParseSelector(d.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	st := c.states.For(cache.MetaObjectToName(d), d.UID)
	work := syncState{key: cache.MetaObjectToName(d), d: d, selector: selector, now: now, sets: sets, expectations: &st.expectations, backoffs: &st.backoffs}
	c.loader.Cached = func(t syncState) syncState { return t }
	return &bench{c, work, client, events, clk}
}

func depsOf(t *testing.T, store *caches.Caches, client kubernetes.Interface, clk clock.WithTicker) Deps {
	t.Helper()
	deployments, err1 := store.Deployments()
	sets, err2 := store.ReplicaSets()
	pods, err3 := store.Pods()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return Deps{Client: client, Deployments: deployments, ReplicaSets: sets, Pods: pods, Clock: clk, Metrics: prometheus.NewRegistry()}
}

func objects(sets []*appsv1.ReplicaSet) (out []runtime.Object) {
	for _, rs := range sets {
		out = append(out, rs.DeepCopy())
	}
	return out
}

// run runs a sync as if the caches showed all writes.
func (b *bench) run(ctx context.Context) (controller.Result, error) {
	b.expectations.barrier = controller.ConsistencyBarrier{}
	return resultOf(b.step(ctx, b.syncState))
}

// on sets the results of requests, such as "create replicasets". result is called once per request.
func (b *bench) on(request string, answer func(call int, a clienttesting.Action) (runtime.Object, error)) {
	verb, resource, _ := strings.Cut(request, " ")
	calls := 0
	b.client.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if named(a) != resource {
			return false, nil, nil
		}
		calls++
		obj, err := answer(calls, a)
		return obj != nil || err != nil, obj, err
	})
}

func named(a clienttesting.Action) string {
	if a.GetSubresource() != "" {
		return a.GetResource().Resource + "/" + a.GetSubresource()
	}
	return a.GetResource().Resource
}

func fails(err error) func(int, clienttesting.Action) (runtime.Object, error) {
	return func(int, clienttesting.Action) (runtime.Object, error) { return nil, err }
}

// stored returns the ReplicaSets of the API server.
func (b *bench) stored(t *testing.T) (sets []*appsv1.ReplicaSet) {
	t.Helper()
	list, err := b.client.Tracker().List(appsv1.SchemeGroupVersion.WithResource("replicasets"), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "default")
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.(*appsv1.ReplicaSetList).Items {
		sets = append(sets, list.(*appsv1.ReplicaSetList).Items[i].DeepCopy())
	}
	return sets
}

// wants compares the requests.
func (b *bench) wants(t *testing.T, requests ...string) {
	t.Helper()
	var got []string
	for _, a := range b.client.Actions() {
		got = append(got, a.GetVerb()+" "+named(a))
	}
	if !slices.Equal(got, requests) {
		t.Errorf("requests are %v, want %v", got, requests)
	}
}

// newEvents returns the events since the last call.
func (b *bench) newEvents() (out []string) {
	for {
		select {
		case e := <-b.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (b *bench) wantsEvents(t *testing.T, parts ...string) {
	t.Helper()
	told := b.newEvents()
	if !slices.EqualFunc(told, parts, strings.Contains) {
		t.Errorf("events %q, want %q", told, parts)
	}
}

// owned returns a ReplicaSet of newDeployment as the cache holds it, with a template.
func owned(d *appsv1.Deployment, image string, s replicaSet) *appsv1.ReplicaSet {
	rs := s.rs
	rs.UID, rs.ResourceVersion = types.UID("uid of "+rs.Name), "5"
	rs.Labels = map[string]string{"app": "web"}
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, ownerKind)}
	rs.Spec.Selector, rs.Spec.Template = d.Spec.Selector, newTemplate(image)
	return rs
}

// errBroken has an unknown outcome.
var errBroken = apierrors.NewTimeoutError("etcd is slow", 0)
