package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	setResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}
)

// bench runs one sync against a client with chosen responses. The caches are empty; the sync gets the pods
// from the test.
type bench struct {
	*Controller
	syncState
	*fakeapi.Script
}

func newBench(t *testing.T, rs *appsv1.ReplicaSet, pods ...*caches.Pod) *bench {
	t.Helper()
	script := fakeapi.NewScript(t, rs)
	base := controller.Base{
		Client: script, Caches: caches.New(script, caches.Config{Name: t.Name()}), Clock: testingclock.NewFakeClock(now),
		Metrics: prometheus.NewRegistry(), Recorder: func(string) record.EventRecorder { return script.Recorder },
	}
	c, err := newController(Config{PodDeletionCost: true, TerminatingReplicas: true}, base)
	if err != nil {
		t.Fatal(err)
	}
	c.baseline.Read(t.Context(), nil)
	c.loader.Cached = func(t syncState) syncState { return t }
	st := c.states.For(cache.MetaObjectToName(rs), rs.UID)
	work := syncState{
		key: cache.MetaObjectToName(rs), rs: rs, selector: mustSelect(rs), now: now, versions: versions("1000000", "1000000"), pods: pods,
		expectations: &st.expectations, backoffs: &st.backoffs,
	}
	return &bench{c, work, script}
}

func (b *bench) run(ctx context.Context) (controller.Result, error) { return b.step(ctx, b.syncState) }

func (b *bench) mustRun(t *testing.T) {
	t.Helper()
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// versions holds the versions of the caches of pods and ReplicaSets.
func versions(pods, sets string) controller.Versions {
	return controller.Versions{podResource: pods, setResource: sets}
}

func statusOfSize(replicas int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Status = appsv1.ReplicaSetStatus{Replicas: replicas, FullyLabeledReplicas: replicas, ObservedGeneration: rs.Generation, TerminatingReplicas: new(int32)}
	}
}

func TestRequestsOfOneSync(t *testing.T) {
	broken, canceled := apierrors.NewInternalError(errors.New("boom")), fmt.Errorf("no lease: %w", context.Canceled)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "few", errors.New("the object has been modified"))
	beingDeleted := func(rs *appsv1.ReplicaSet) {
		rs.DeletionTimestamp, rs.Finalizers = new(ago(0)), []string{"foregroundDeletion"}
	}
	for _, tt := range []struct {
		name  string
		rs    *appsv1.ReplicaSet
		pods  []*caches.Pod
		fails string // request that fails
		err   error
		want  []string
		told  int // events
	}{
		{"nothing to do", newSet(2, statusOfSize(2)), []*caches.Pod{newPod("a"), newPod("b")}, "", nil, nil, 0},
		{"pods of others are neither patched nor counted", newSet(2), []*caches.Pod{newPod("a", ownedBy("another"))}, "", nil,
			[]string{"create pods", "create pods", "update replicasets/status"}, 2},
		{"a failed adoption: others are tried, then the sync ends", newSet(2), []*caches.Pod{newPod("a", orphaned), newPod("b", orphaned)}, "patch pods", broken,
			[]string{"get replicasets", "patch pods", "patch pods"}, 0},
		{"being deleted: only the status", newSet(3, beingDeleted), []*caches.Pod{newPod("a"), newPod("b", orphaned), newPod("c", labelled(nil))}, "", nil,
			[]string{"update replicasets/status"}, 0},
		{"the end of the term is no event", newSet(1), nil, "create pods", canceled, []string{"create pods"}, 0},
		{"a concurrent change of the quota is retried soon", newSet(1), nil, "create pods", conflict, []string{"create pods", "update replicasets/status"}, 1},
		{"a template without labels", newSet(1, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }), nil, "", errNoLabels, []string{"update replicasets/status"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.rs, tt.pods...)
			b.On(tt.fails, fakeapi.Fails(tt.err))
			if result, err := b.run(t.Context()); !errors.Is(err, tt.err) || tt.want == nil && result.RequeueAfter != 0 {
				t.Errorf("result %+v, error %v, want %v", result, err, tt.err)
			}
			b.Wants(t, tt.want...)
			if told := b.NewEvents(); len(told) != tt.told {
				t.Errorf("events are %q, want %d", told, tt.told)
			}
		})
	}
}

func TestAdoptionNeedsALiveReplicaSet(t *testing.T) {
	for _, tt := range []struct {
		name string
		live func(*appsv1.ReplicaSet)
	}{
		{"being deleted", func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp, rs.Finalizers = new(ago(0)), []string{"orphan"} }},
		{"another by now", func(rs *appsv1.ReplicaSet) { rs.UID = "another" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(2), newPod("a", orphaned))
			b.On("get replicasets", fakeapi.Returns(newSet(2, tt.live)))
			result, err := b.run(t.Context())
			if err == nil && result.RequeueAfter == 0 {
				t.Error("the sync is not repeated")
			}
			b.Wants(t, "get replicasets")
		})
	}
}

// TestRefusedReleaseIsTriedAgainAfterALiveRead: a live read lists selected pods only, so the list lacks the
// pod to release.
func TestRefusedReleaseIsTriedAgainAfterALiveRead(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)), newPod("a", labelled(map[string]string{"app": "db"})))
	b.On("patch pods", fakeapi.Fails(apierrors.NewForbidden(podResource, "a", errors.New("no"))))
	b.Controller.baseline.Reset()
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Minute {
		t.Errorf("result %+v, error %v, want another sync when the release may be tried again", result, err)
	}
	if b.Wants(t, "patch pods", "get replicasets", "list pods", "create pods", "update replicasets/status"); b.backoffs.ownership.Remaining(now) != time.Minute {
		t.Error("the live read, which does not list the pod, ended the back-off")
	}
}

// TestWritesThatCachesDoNotShow: a frozen watch delivers no events, so a sync that wrote is requeued.
func TestWritesThatCachesDoNotShow(t *testing.T) {
	b := newBench(t, newSet(1, statusOfSize(0)))
	b.On("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = "100"
		return pod, nil
	})
	b.On("update replicasets/status", func(int, clienttesting.Action) (runtime.Object, error) { return b.rs, nil })
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != controller.ConsistencyTimeout {
		t.Errorf("after a create: result %+v, error %v, want another sync after %v", result, err, controller.ConsistencyTimeout)
	}
	b.syncState.pods, b.rs, b.versions = []*caches.Pod{newPod("a")}, newSet(1, statusOfSize(1)), versions("99", "10")
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != controller.ConsistencyRecheck {
		t.Errorf("while the cache lags: result %+v, error %v, want another sync after %v", result, err, controller.ConsistencyRecheck)
	}
	if skips := testutil.ToFloat64(b.metrics.staleSkips.WithLabelValues("", "pods")); skips != 1 {
		t.Errorf("%v skipped syncs are counted, want 1", skips)
	}
	b.now = now.Add(controller.ConsistencyTimeout)
	if _, err := b.run(t.Context()); err != nil || !slices.Contains(b.Sent(), "list pods") {
		t.Errorf("when the cache is overdue: error %v, requests %v, want a live read", err, b.Sent())
	}
	b.versions = versions("100", "10")
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != 0 {
		t.Errorf("when all is shown: result %+v, error %v, want none", result, err)
	}
}

// TestPodsThatKeepFailing: pods that fail soon are replaced with a delay, and one event reports the delay.
func TestPodsThatKeepFailing(t *testing.T) {
	pods := []*caches.Pod{}
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, newPod(name, phase(corev1.PodFailed), createdAt(ago(0))))
	}
	b := newBench(t, newSet(1, statusOfSize(0)), pods...)
	for range 2 {
		if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != minFailedBackoff {
			t.Errorf("result %+v, error %v; want After 10s", result, err)
		}
	}
	b.Wants(t)
	b.now = now.Add(minFailedBackoff)
	b.mustRun(t)
	b.Wants(t, "create pods", "update replicasets/status")
	if told := b.NewEvents(); len(told) != 2 || !strings.Contains(told[0], "BackOff") {
		t.Errorf("events are %v, want one about the back-off and one about the pod", told)
	}
}

// TestFailedPodsDelayAsManyCreates: the other missing pods are created at once.
func TestFailedPodsDelayAsManyCreates(t *testing.T) {
	pods := []*caches.Pod{newPod("e")}
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, newPod(name, phase(corev1.PodFailed), createdAt(ago(0))))
	}
	b := newBench(t, newSet(10, statusOfSize(1)), pods...)
	if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != minFailedBackoff {
		t.Errorf("result %+v, error %v; want another sync after 10s", result, err)
	}
	if creates := b.Count("create pods"); creates != 9-4 {
		t.Errorf("%d creates, want all but four", creates)
	}
}

// TestTerminatingNamespaceIsNoMismatch: no pods are created, and missing pods cause no alert.
func TestTerminatingNamespaceIsNoMismatch(t *testing.T) {
	for _, terminating := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			if terminating {
				ns.DeletionTimestamp, ns.Finalizers = new(ago(time.Minute)), []string{"kubernetes"}
			}
			store := caches.New(fakeapi.NewClientset(t, ns), caches.Config{Name: t.Name()})
			namespaces, err := store.Namespaces()
			if err != nil {
				t.Fatal(err)
			}
			defer fakeapi.FillCaches(t, store)()
			b := newBench(t, newSet(1, statusOfSize(0)))
			b.namespaces = namespaces
			b.mustRun(t)
			unmet := longestMismatch(b.states, now.Add(time.Hour)) > 0
			if created := len(b.Sent()) > 0; created == terminating || unmet == terminating {
				t.Errorf("terminating %t: created %t, unmet %t", terminating, created, unmet)
			}
		})
	}
}
