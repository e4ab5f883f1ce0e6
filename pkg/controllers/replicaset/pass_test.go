package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/pkg/caches"
)

var podResource = schema.GroupResource{Resource: "pods"}

// bench is one sync against a client whose answers a test chooses. Its caches are empty; the sync is given what it sees.
type bench struct {
	*pass
	client *fake.Clientset
	events *record.FakeRecorder
}

func newBench(t *testing.T, rs *appsv1.ReplicaSet, pods ...*caches.Pod) *bench {
	t.Helper()
	client := fake.NewClientset()
	if err := client.Tracker().Add(rs.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	store := caches.New(client, caches.Config{Name: t.Name()})
	deps := Deps{Client: client, Clock: testingclock.NewFakeClock(now), Metrics: prometheus.NewRegistry()}
	var err error
	if deps.Pods, err = store.Pods(); err != nil {
		t.Fatal(err)
	}
	if deps.ReplicaSets, err = store.ReplicaSets(); err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(1000)
	deps.Recorder = events
	c, err := New(Config{PodDeletionCost: true, TerminatingReplicas: true}, deps)
	if err != nil {
		t.Fatal(err)
	}
	p := &pass{Controller: c, rs: rs, selector: selectorOf(rs), ledger: newLedger(rs.UID), now: now, pods: pods}
	return &bench{p, client, events}
}

// on makes the client answer requests of a verb and resource, such as "create pods", with the results of answer, one per call.
func (b *bench) on(request string, answer func(call int, a clienttesting.Action) (runtime.Object, error)) {
	verb, resource, _ := strings.Cut(request, " ")
	calls := 0
	b.client.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.GetResource().Resource
		if a.GetSubresource() != "" {
			name += "/" + a.GetSubresource()
		}
		if name != resource {
			return false, nil, nil
		}
		calls++
		obj, err := answer(calls, a)
		return obj != nil || err != nil, obj, err
	})
}

func fails(err error) func(int, clienttesting.Action) (runtime.Object, error) {
	return func(int, clienttesting.Action) (runtime.Object, error) { return nil, err }
}

// requests lists what was asked of the API server, reads of caches excepted.
func (b *bench) requests() []string {
	var out []string
	for _, a := range b.client.Actions() {
		resource := a.GetResource().Resource
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		out = append(out, a.GetVerb()+" "+resource)
	}
	return out
}

func (b *bench) told() []string {
	close(b.events.Events)
	var out []string
	for e := range b.events.Events {
		out = append(out, e)
	}
	return out
}

func (b *bench) wants(t *testing.T, requests ...string) {
	t.Helper()
	if got := b.requests(); !slices.Equal(got, requests) {
		t.Errorf("requests are %v, want %v", got, requests)
	}
}

func statusOfSize(replicas int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Status = appsv1.ReplicaSetStatus{Replicas: replicas, FullyLabeledReplicas: replicas, ObservedGeneration: rs.Generation, TerminatingReplicas: new(int32)}
	}
}

func TestNothingToDo(t *testing.T) {
	rs := newSet(2, statusOfSize(2))
	b := newBench(t, rs, newPod("a"), newPod("b"))
	if result, err := b.run(t.Context()); err != nil || result.After != 0 {
		t.Errorf("result %+v, error %v", result, err)
	}
	b.wants(t)
}

func TestOthersPodsAreNeitherPatchedNorCounted(t *testing.T) {
	b := newBench(t, newSet(2), newPod("a", ownedBy("another")))
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants(t, "create pods", "create pods", "update replicasets/status")
}

// TestPatchFails: both pods are tried, then the sync ends, without a create, a delete or a status.
func TestPatchFails(t *testing.T) {
	b := newBench(t, newSet(2), newPod("a", orphaned), newPod("b", orphaned))
	boom := apierrors.NewInternalError(errors.New("boom"))
	b.on("patch pods", fails(boom))
	if _, err := b.run(t.Context()); !errors.Is(err, boom) {
		t.Errorf("error is %v", err)
	}
	b.wants(t, "get replicasets", "patch pods", "patch pods")
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
			b.on("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) { return newSet(2, tt.live), nil })
			result, err := b.run(t.Context())
			if err == nil && result.After == 0 {
				t.Error("the sync is not repeated")
			}
			b.wants(t, "get replicasets")
		})
	}
}

// TestSetBeingDeleted only reports.
func TestSetBeingDeleted(t *testing.T) {
	b := newBench(t, newSet(3, func(rs *appsv1.ReplicaSet) {
		rs.DeletionTimestamp, rs.Finalizers = new(ago(0)), []string{"foregroundDeletion"}
	}),
		newPod("a"), newPod("b", orphaned), newPod("c", labelled(nil)))
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants(t, "update replicasets/status")
}

func TestStoppedSyncSaysNothing(t *testing.T) {
	b := newBench(t, newSet(1))
	b.on("create pods", fails(fmt.Errorf("no lease: %w", context.Canceled)))
	if _, err := b.run(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	b.wants(t, "create pods")
	if told := b.told(); len(told) > 0 {
		t.Errorf("events are %v", told)
	}
	if b.ledger.unanswered() != 1 {
		t.Errorf("%d unanswered creates, want 1", b.ledger.unanswered())
	}
}

func TestCreateUntilNameIsFree(t *testing.T) {
	b := newBench(t, newSet(1))
	var tried []string
	b.on("create pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		if call <= 2 {
			return nil, apierrors.NewAlreadyExists(podResource, name)
		}
		return nil, nil
	})
	b.on("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		theirs := corev1.Pod{ObjectMeta: newPod(tried[call-1], ownedBy("another")).ObjectMeta}
		return &corev1.PodList{Items: []corev1.Pod{theirs}}, nil
	})
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(tried) != 3 || tried[0] == tried[1] || tried[1] == tried[2] || len(b.ledger.intents) != 0 {
		t.Errorf("names tried are %v, names kept %v", tried, b.ledger.intents)
	}
}

// TestRefusedCreateIsRetriedByItsName: events about it are then all alike, and merge.
func TestRefusedCreateIsRetriedByItsName(t *testing.T) {
	b := newBench(t, newSet(3))
	var tried []string
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		name := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name
		tried = append(tried, name)
		return nil, apierrors.NewForbidden(podResource, name, errors.New("exceeded quota"))
	})
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	b.rs = newSet(3)
	if result, err := b.run(t.Context()); err != nil || result.After != minCreateBackoff || len(tried) != 1 {
		t.Errorf("during the back-off: result %+v, error %v, %d creates; want After 1 s and no more creates", result, err, len(tried))
	}
	b.now = now.Add(minCreateBackoff)
	if _, err := b.run(t.Context()); err == nil || len(tried) != 2 || tried[0] != tried[1] {
		t.Errorf("after it: error %v, names %v; want the same name again", err, tried)
	}
	if told := b.told(); len(told) != 2 || told[0] != told[1] || !strings.HasPrefix(told[0], "Warning FailedCreate Error creating: pods") {
		t.Errorf("events are %q", told)
	}
}

// TestCreatedPodIsNotOurs: a webhook took the label away. Making another one would never end.
func TestCreatedPodIsNotOurs(t *testing.T) {
	b := newBench(t, newSet(1))
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		pod.Labels = nil
		return pod, nil
	})
	if _, err := b.run(t.Context()); err == nil {
		t.Error("no error")
	}
	if wait := b.ledger.creates.wait(1, now); wait != minCreateBackoff {
		t.Errorf("creates wait %v, want 1s", wait)
	}
}

func TestTemplateWithoutLabels(t *testing.T) {
	b := newBench(t, newSet(1, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }))
	if _, err := b.run(t.Context()); !errors.Is(err, errNoLabels) {
		t.Errorf("error is %v", err)
	}
	b.wants(t, "update replicasets/status")
	if told := b.told(); len(told) > 0 {
		t.Errorf("events are %v", told)
	}
}

func TestPodFor(t *testing.T) {
	rs := newSet(1, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.ObjectMeta = metav1.ObjectMeta{Name: "x", Namespace: "y", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"}}
		rs.Spec.Template.Spec.NodeName = "n"
	})
	pod := podFor(rs)
	want := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: new(true), BlockOwnerDeletion: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
	if fmt.Sprintf("%+v", pod.ObjectMeta.OwnerReferences[0].String()) != want.OwnerReferences[0].String() || pod.Name != "" || pod.Namespace != want.Namespace ||
		pod.GenerateName != want.GenerateName || pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || pod.Finalizers[0] != "f" {
		t.Errorf("pod is %+v, want %+v", pod, want)
	}
}

func TestDeleteAnswers(t *testing.T) {
	changed := func(edits ...func(*caches.Pod)) *corev1.Pod {
		trimmed := newPod("a", append([]func(*caches.Pod){version("9")}, edits...)...)
		return &corev1.Pod{ObjectMeta: trimmed.ObjectMeta, Spec: corev1.PodSpec{NodeName: trimmed.NodeName}, Status: corev1.PodStatus{Phase: trimmed.Phase}}
	}
	precondition := apierrors.NewConflict(podResource, "a", errors.New("the UID or the resourceVersion is another"))
	for _, tt := range []struct {
		name    string
		answers []error
		live    *corev1.Pod // found when looking after a conflict; nil: gone
		deletes int
		gone    bool
		doomed  string // version to be deleted again; empty: none
		failed  bool
		told    int
	}{
		{name: "deleted", answers: []error{nil}, deletes: 1, gone: true, told: 1},
		{name: "was gone already", answers: []error{apierrors.NewNotFound(podResource, "a")}, deletes: 1, gone: true},
		{name: "refused", answers: []error{apierrors.NewForbidden(podResource, "a", errors.New("no"))}, deletes: 1, failed: true, told: 1},
		{name: "not answered", answers: []error{apierrors.NewTimeoutError("slow", 0)}, deletes: 1, doomed: "5", failed: true, told: 1},
		{name: "changed, and gone by now", answers: []error{precondition}, deletes: 1, gone: true},
		{name: "changed, and being deleted", answers: []error{precondition}, live: changed(deleting), deletes: 1, gone: true},
		{name: "another of its name", answers: []error{precondition}, live: changed(func(p *caches.Pod) { p.UID = "other" }), deletes: 1, gone: true},
		{name: "changed in ways that do not matter", answers: []error{precondition, nil}, live: changed(), deletes: 2, gone: true, told: 1},
		{name: "changed, then not answered", answers: []error{precondition, apierrors.NewTimeoutError("slow", 0)}, live: changed(), deletes: 2, doomed: "9", failed: true, told: 1},
		{name: "changed twice", answers: []error{precondition, precondition}, live: changed(), deletes: 2},
		{name: "moved to a node", answers: []error{precondition}, live: changed(onNode("n")), deletes: 1},
		{name: "given away", answers: []error{precondition}, live: changed(orphaned), deletes: 1},
		{name: "no longer selected", answers: []error{precondition}, live: changed(labelled(nil)), deletes: 1},
		{name: "finished", answers: []error{precondition}, live: changed(phase(corev1.PodFailed)), deletes: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(0, statusOfSize(1)), newPod("a"))
			deletes := 0
			b.on("delete pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				deletes++
				opts := a.(clienttesting.DeleteActionImpl).DeleteOptions
				if want := []string{"5", "9"}[call-1]; *opts.Preconditions.UID != "a" || *opts.Preconditions.ResourceVersion != want {
					t.Errorf("preconditions are %+v, want UID a at version %s", opts.Preconditions, want)
				}
				return &corev1.Pod{}, tt.answers[call-1]
			})
			b.on("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				list := &corev1.PodList{}
				if tt.live != nil {
					list.Items = append(list.Items, *tt.live)
				}
				return list, nil
			})
			_, err := b.run(t.Context())
			_, gone := b.ledger.gone["a"]
			if (err != nil) != tt.failed || deletes != tt.deletes || gone != tt.gone || b.ledger.doomed["a"].version != tt.doomed {
				t.Errorf("error %v, %d deletes, gone %t, to be deleted again at %q", err, deletes, gone, b.ledger.doomed["a"].version)
			}
			if told := b.told(); len(told) != tt.told {
				t.Errorf("events are %v, want %d", told, tt.told)
			}
		})
	}
}

// TestDoomedPodIsDeletedAgain before anything else, with the precondition it was sent with, and no other pod in its place.
func TestDoomedPodIsDeletedAgain(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"), newPod("b", version("7")))
	b.ledger.doomed["b"] = doom{name: "b", version: "6"}
	var deleted []string
	b.on("delete pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		deleted = append(deleted, d.Name+"@"+*d.DeleteOptions.Preconditions.ResourceVersion)
		return &corev1.Pod{}, nil
	})
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(deleted, []string{"b@6"}) || len(b.ledger.doomed) != 0 {
		t.Errorf("deleted %v, still doomed %v", deleted, b.ledger.doomed)
	}
}

func TestStatusConflict(t *testing.T) {
	conflicted := apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "replicasets"}, "web", errors.New("newer"))
	foreign := appsv1.ReplicaSetCondition{Type: "Foreign", Status: corev1.ConditionTrue}
	for _, tt := range []struct {
		name     string
		answers  []error
		live     func(*appsv1.ReplicaSet)
		failed   bool
		requests []string
	}{
		{"written", []error{nil}, nil, false, []string{"update replicasets/status"}},
		{"conflict, then written", []error{conflicted, nil}, func(rs *appsv1.ReplicaSet) {
			rs.ResourceVersion, rs.Status.Conditions = "11", []appsv1.ReplicaSetCondition{foreign}
		}, false, []string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"conflict twice is no failure", []error{conflicted, conflicted}, nil, false,
			[]string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"conflict with another spec", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.Generation++ }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"conflict with another ReplicaSet", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.UID = "another" }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"deleted", []error{apierrors.NewNotFound(podResource, "web")}, nil, false, []string{"update replicasets/status"}},
		{"other errors are not retried at once", []error{apierrors.NewInternalError(errors.New("boom"))}, nil, true, []string{"update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1), newPod("a"))
			b.on("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
				if call == 2 && sent.ResourceVersion == "11" && !slices.Contains(sent.Status.Conditions, foreign) {
					t.Error("the second try drops a condition of somebody else")
				}
				return sent, tt.answers[call-1]
			})
			b.on("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
				if tt.live == nil {
					return newSet(1), nil
				}
				return newSet(1, tt.live), nil
			})
			if _, err := b.run(t.Context()); (err != nil) != tt.failed {
				t.Errorf("error is %v", err)
			}
			b.wants(t, tt.requests...)
		})
	}
}

// TestServerWithoutTerminatingReplicas: an API server that drops the field must not be told for ever.
func TestServerWithoutTerminatingReplicas(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"))
	b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		stored := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
		stored.Status.TerminatingReplicas = nil
		b.rs = stored
		return stored, nil
	})
	for range 3 {
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.wants(t, "update replicasets/status")
}

// TestTerminatingNamespaceIsTriedOnce per generation of the spec.
func TestTerminatingNamespaceIsTriedOnce(t *testing.T) {
	ending := apierrors.NewForbidden(podResource, "a", errors.New("being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	b := newBench(t, newSet(100, statusOfSize(0)))
	b.on("create pods", fails(ending))
	for range 3 {
		if result, err := b.run(t.Context()); err != nil || result.After != 0 {
			t.Errorf("result %+v, error %v", result, err)
		}
	}
	b.wants(t, "create pods")
	b.rs = newSet(100, func(rs *appsv1.ReplicaSet) { rs.Generation = 2 }, statusOfSize(0))
	if _, err := b.run(t.Context()); err != nil {
		t.Error(err)
	}
	b.wants(t, "create pods", "create pods")
	if told := b.told(); len(told) > 0 {
		t.Errorf("events are %v", told)
	}
}

// TestAvailabilityRecheck asks for the sync at which the pod becomes available, as upstream: 700 ms for a pod ready for 4.3 s of 5.
func TestAvailabilityRecheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *caches.Pod
		late int // milliseconds that the status write took
		want int // milliseconds; 0: no need
	}{
		{"becomes available", newPod("a", readySince(ago(4300_000_000))), 0, 700},
		{"the status write took a while", newPod("a", readySince(ago(4300_000_000))), 200, 500},
		{"the moment has passed meanwhile", newPod("a", readySince(ago(4300_000_000))), 900, 1},
		{"nobody knows since when it is ready", newPod("a", readySince(metav1.Time{})), 0, 5000},
		{"available", newPod("a", readySince(ago(5000_000_000))), 0, 0},
		{"not ready", newPod("a"), 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 }), tt.pod)
			clock := b.deps.Clock.(*testingclock.FakeClock)
			b.on("update replicasets/status", func(int, clienttesting.Action) (runtime.Object, error) {
				clock.SetTime(now.Add(ms(tt.late)))
				return nil, nil
			})
			result, err := b.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := ms(tt.want)
			if tt.want == 1 {
				want = 1 // as soon as possible
			}
			if result.After != want {
				t.Errorf("look again after %v, want %v", result.After, want)
			}
		})
	}
}

// TestQuotaHidesLostCreate: the repetition of a create that was committed is refused for another reason than its name.
func TestQuotaHidesLostCreate(t *testing.T) {
	for _, found := range []bool{true, false} {
		t.Run(fmt.Sprintf("found=%t", found), func(t *testing.T) {
			b := newBench(t, newSet(1))
			b.ledger.intents = []intent{{"web-lost", true}}
			b.on("create pods", fails(apierrors.NewGenericServerResponse(http.StatusForbidden, "post", podResource, "web-lost", "exceeded quota", 0, true)))
			b.on("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				list := &corev1.PodList{}
				if found {
					list.Items = []corev1.Pod{{ObjectMeta: newPod("web-lost").ObjectMeta}}
				}
				return list, nil
			})
			_, err := b.run(t.Context())
			if kept := len(b.ledger.intents) == 1; (err == nil) != found || kept == found {
				t.Errorf("error %v, name kept %t", err, kept)
			}
		})
	}
}
