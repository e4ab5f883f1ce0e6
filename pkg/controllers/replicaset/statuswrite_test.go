package replicaset

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

func TestStatusConflict(t *testing.T) {
	conflicted := apierrors.NewConflict(setResource, "web", errors.New("newer"))
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
		{"conflict with other numbers, which are newer", []error{conflicted}, func(rs *appsv1.ReplicaSet) {
			rs.ResourceVersion, rs.Status.Replicas, rs.Status.ReadyReplicas = "11", 1, 1
		}, false, []string{"update replicasets/status", "get replicasets"}},
		{"conflict with another spec", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.Generation++ }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"conflict with another ReplicaSet", []error{conflicted}, func(rs *appsv1.ReplicaSet) { rs.UID = "another" }, false,
			[]string{"update replicasets/status", "get replicasets"}},
		{"deleted", []error{apierrors.NewNotFound(setResource, "web")}, nil, false, []string{"update replicasets/status"}},
		{"404 of a load balancer", []error{apierrors.NewGenericServerResponse(http.StatusNotFound, "put", setResource, "web", "no backend", 0, true)}, nil, true,
			[]string{"update replicasets/status", "get replicasets", "update replicasets/status"}},
		{"other errors are not retried at once", []error{apierrors.NewInternalError(errors.New("boom"))}, nil, true, []string{"update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1), newPod("a"))
			b.On("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
				if call == 2 && sent.ResourceVersion == "11" && !slices.Contains(sent.Status.Conditions, foreign) {
					t.Error("the second try drops a condition of another writer")
				}
				return sent, tt.answers[min(call, len(tt.answers))-1]
			})
			b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
				if tt.live == nil {
					return newSet(1), nil
				}
				return newSet(1, tt.live), nil
			})
			if _, err := b.run(t.Context()); (err != nil) != tt.failed {
				t.Errorf("error is %v", err)
			}
			b.Wants(t, tt.requests...)
		})
	}
}

// TestRejectedStatusIsRepeatedWithTheTemplate: admission may require a template, which the cache lacks for a
// ReplicaSet that wants no pods.
func TestRejectedStatusIsRepeatedWithTheTemplate(t *testing.T) {
	b := newBench(t, newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{UID: "digest"}}
	}))
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if template := sent.Spec.Template; template.UID != "" || len(template.Spec.Containers) == 0 {
			return nil, apierrors.NewForbidden(setResource, "web", errors.New("no containers"))
		}
		return sent, nil
	})
	b.On("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		return newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}} }), nil
	})
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// TestServerWithoutTerminatingReplicas: an API server that drops the field gets no status because of that
// field alone, for any ReplicaSet. Other statuses have the field, because another API server may keep it.
func TestServerWithoutTerminatingReplicas(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"))
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		stored := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
		if stored.Status.TerminatingReplicas == nil {
			t.Error("a status lacks the field")
		}
		stored.Status.TerminatingReplicas = nil
		b.rs = stored
		return stored, nil
	})
	b.mustRun(t)
	*b.backoffs, *b.expectations = backoffs{}, newExpectations() // as the numbers of another ReplicaSet
	b.mustRun(t)
	b.Wants(t, "update replicasets/status")
	b.rs.Status.ReadyReplicas = 1
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "update replicasets/status")
}

// TestAvailabilityRecheck: the key is requeued at the time at which the pod becomes available, as upstream:
// 700 ms for a pod ready for 4.3 s of 5.
func TestAvailabilityRecheck(t *testing.T) {
	pods := func(readyFor ...int) (pods []*caches.Pod) { // milliseconds
		for i, n := range readyFor {
			pods = append(pods, newPod(fmt.Sprint(i), readySince(ago(ms(n)))))
		}
		return pods
	}
	for _, tt := range []struct {
		name string
		pods []*caches.Pod
		late int // milliseconds that the status write took
		want int // milliseconds
	}{
		{"becomes available", pods(4300), 0, 700},
		{"the status write took a while", pods(4300), 200, 500},
		{"the moment has passed meanwhile", pods(4300), 900, 1},
		{"the first of several", pods(4300, 9000, 0), 0, 700},
		{"ready in the future, by another clock", pods(-5000), 0, 10_000},
		{"ready since an unknown time", []*caches.Pod{newPod("a", readySince(metav1.Time{}))}, 0, 5000},
		{"available: only the status write is not shown yet", pods(5000), 0, 30_000},
		{"not ready, likewise", []*caches.Pod{newPod("a")}, 0, 30_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(int32(len(tt.pods)), func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 5 }), tt.pods...)
			clock := b.Clock.(*testingclock.FakeClock)
			b.On("update replicasets/status", func(int, clienttesting.Action) (runtime.Object, error) {
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
			if result.RequeueAfter != want {
				t.Errorf("look again after %v, want %v", result.RequeueAfter, want)
			}
		})
	}
}

// TestStatusesArePaced: two kinds of statuses wait since the last one. Fewer terminating pods, but not none, wait for a
// second. More ready pods wait in proportion to the duration of the last write, if a controller adds the numbers up,
// and if not all pods are ready.
func TestStatusesArePaced(t *testing.T) {
	type edit = func(*appsv1.ReplicaSet)
	ready := func(pods int32) edit {
		return func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = pods, pods }
	}
	desired := func(pods, most string) edit {
		return func(rs *appsv1.ReplicaSet) {
			rs.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": pods, "deployment.kubernetes.io/max-replicas": most}
		}
	}
	replicas := func(n int32) edit { return func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = n } }
	generation := func(rs *appsv1.ReplicaSet) { rs.Generation++ }
	unreported := func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = nil }
	slow := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }
	owned := func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&appsv1.Deployment{}, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	}
	for _, tt := range []struct {
		name   string
		was    []edit // after a status of size pods, none of them ready
		size   int    // pods
		ready  int    // pods
		ending int    // pods
		took   int    // milliseconds, the last status
		since  int    // milliseconds since then
		wait   int    // milliseconds; 0: written
	}{
		{"fewer terminating", []edit{ending(3)}, 1, 0, 2, 0, 300, 700},
		{"fewer terminating, long after the last status", []edit{ending(3)}, 1, 0, 2, 0, 1000, 0},
		{"none terminating", []edit{ending(1)}, 1, 0, 0, 0, 0, 0},
		{"more terminating", []edit{ending(0)}, 1, 0, 2, 0, 300, 0},
		{"terminating for the first time", []edit{unreported}, 1, 0, 2, 0, 300, 0},
		{"fewer terminating, and another number", []edit{ending(3), ready(1)}, 1, 0, 2, 0, 300, 0},
		{"fewer terminating, and the generation", []edit{ending(3), generation}, 1, 0, 2, 0, 300, 0},

		{"one more ready", []edit{owned, ready(1)}, 15, 2, 0, 5, 300, 500},
		{"one more ready, a while after the last status", []edit{owned, ready(1)}, 15, 2, 0, 5, 800, 0},
		{"a quick API server", []edit{owned, ready(1)}, 15, 2, 0, 0, 0, 0},
		{"a slow API server", []edit{owned, ready(1)}, 15, 2, 0, 60_000, 300, 1700},
		{"few pods: each counts", []edit{owned, ready(1)}, 14, 2, 0, 20, 300, 0},
		{"few of a large Deployment", []edit{owned, ready(1), desired("50", "63")}, 14, 13, 0, 5, 300, 500},
		{"a small surge: each pod counts", []edit{owned, ready(20), desired("100", "107")}, 50, 21, 0, 5, 300, 0},
		{"a large surge", []edit{owned, ready(20), desired("100", "108")}, 50, 21, 0, 5, 300, 500},
		{"many of a small Deployment", []edit{owned, ready(1), desired("14", "18")}, 15, 2, 0, 10, 300, 0},
		{"less than a third", []edit{owned, ready(10)}, 50, 26, 0, 5, 300, 500},
		{"a third", []edit{owned, ready(10)}, 50, 27, 0, 10, 300, 0},
		{"no owner", []edit{ready(1)}, 15, 2, 0, 20, 300, 0},
		{"all ready", []edit{owned, ready(1)}, 15, 15, 0, 20, 300, 0},
		{"all ready, not available", []edit{owned, ready(0), slow}, 15, 15, 0, 20, 300, 0},
		{"fewer ready", []edit{owned, ready(2)}, 15, 1, 0, 20, 300, 0},
		{"more ready, and the generation", []edit{owned, ready(1), generation}, 15, 2, 0, 20, 300, 0},
		{"more ready, and none terminating", []edit{owned, ready(1), ending(1)}, 15, 2, 0, 20, 300, 0},
		{"more ready, and more pods", []edit{owned, ready(1), replicas(14)}, 15, 2, 0, 5, 300, 500},
		{"more ready, and more pods of another generation", []edit{owned, ready(1), replicas(14), generation}, 15, 2, 0, 5, 300, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pods []*caches.Pod
			for i := range tt.size {
				pods = append(pods, newPod(fmt.Sprint(i)))
				if i < tt.ready {
					readySince(ago(0))(pods[i])
				}
			}
			for i := range tt.ending {
				pods = append(pods, newPod(fmt.Sprint("ending-", i), deleting))
			}
			b := newBench(t, newSet(int32(tt.size), append([]edit{statusOfSize(int32(tt.size))}, tt.was...)...), pods...)
			b.backoffs.statusAt, b.backoffs.statusTook = now.Add(-ms(tt.since)), ms(tt.took)
			result, err := b.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.wait == 0 {
				b.Wants(t, "update replicasets/status")
				return
			}
			b.Wants(t)
			if result.RequeueAfter != ms(tt.wait) {
				t.Errorf("again after %v, want %v", result.RequeueAfter, ms(tt.wait))
			}
		})
	}
}

// TestNoStatusForAnEarlierSize: the API server would return a conflict, and the live read after that
// would be one more request.
func TestNoStatusForAnEarlierSize(t *testing.T) { synctest.Test(t, noStatusForAnEarlierSize) }

func noStatusForAnEarlierSize(t *testing.T) {
	newer := newSet(2, func(rs *appsv1.ReplicaSet) { rs.Generation++ })
	store := caches.New(fakeapi.NewClientset(t, newer), caches.Config{Name: "newer"})
	b := newBench(t, newSet(1), newPod("a"))
	var err error
	if b.replicaSets, err = store.ReplicaSets(); err != nil {
		t.Fatal(err)
	}
	defer fakeapi.FillCaches(t, store)()
	b.mustRun(t)
	b.Wants(t)

	// After a long sync the numbers are written beside the newer spec.
	b.syncState.now = now.Add(-longSync)
	b.On("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if call == 1 {
			return nil, apierrors.NewConflict(setResource, "web", errors.New("newer"))
		}
		if *sent.Spec.Replicas != 2 || sent.Status.Replicas != 1 || sent.Status.ObservedGeneration != b.rs.Generation {
			t.Errorf("sent %+v", sent)
		}
		return sent, nil
	})
	b.On("get replicasets", fakeapi.Returns(newer))
	b.mustRun(t)
	b.Wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// ending sets the number of terminating pods of the status.
func ending(pods int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = &pods }
}

// TestStatusCountsConfirmedWrites: confirmed creates and deletes count, so each change of the size has
// one status.
func TestStatusCountsConfirmedWrites(t *testing.T) {
	unanswered := apierrors.NewTimeoutError("etcd is slow", 0)
	for _, tt := range []struct {
		name        string
		size        int32
		pods        []*caches.Pod
		answer      func(call int, a clienttesting.Action) (runtime.Object, error) // to creates and deletes
		failed      bool
		replicas    int32
		terminating int32
	}{
		{"created", 3, nil, fakeapi.Fails(nil), false, 3, 0},
		{"created, one without an answer", 3, nil, func(call int, _ clienttesting.Action) (runtime.Object, error) {
			if call == 2 {
				return nil, unanswered
			}
			return nil, nil
		}, true, 2, 0},
		{"created, and given to nobody on its way", 1, nil, func(_ int, a clienttesting.Action) (runtime.Object, error) {
			made := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
			made.OwnerReferences = nil
			return made, nil
		}, false, 0, 0},
		{"refused", 3, nil, fakeapi.Fails(apierrors.NewForbidden(podResource, "", errors.New("quota"))), true, 0, 0},
		{"deleted, and gone at once", 1, []*caches.Pod{newPod("a"), newPod("b"), newPod("c")}, fakeapi.Fails(nil), false, 1, 0},
		{"deleted, and ending", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node")), newPod("c", onNode("node"))}, fakeapi.Fails(nil), false, 1, 2},
		{"deleted by somebody else", 1, []*caches.Pod{newPod("a"), newPod("b")}, fakeapi.Fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"deleted by somebody else, from a node", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fakeapi.Fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"being deleted by somebody else", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fakeapi.Fails(apierrors.NewConflict(podResource, "b", errors.New("another version"))), false, 1, 1},
		{"deleted without an answer", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))}, fakeapi.Fails(unanswered), true, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(tt.size), tt.pods...)
			b.On("create pods", tt.answer)
			b.On("delete pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				if _, err := tt.answer(call, a); err != nil {
					return nil, err
				}
				return &corev1.Pod{}, nil
			})
			b.On("list pods", func(_ int, a clienttesting.Action) (runtime.Object, error) { // after a conflict
				name, _ := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
				return podList(newPod(name, onNode("node"), deleting)), nil
			})
			var told []appsv1.ReplicaSetStatus
			b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
				sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
				told = append(told, sent.Status)
				return sent, nil
			})
			if _, err := b.run(t.Context()); (err != nil) != tt.failed {
				t.Errorf("error is %v", err)
			}
			if len(told) != 1 || told[0].Replicas != tt.replicas || *told[0].TerminatingReplicas != tt.terminating {
				t.Errorf("told %+v, want %d replicas and %d ending in one status", told, tt.replicas, tt.terminating)
			}
		})
	}
}

func TestStatusDurationIsRecorded(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"))
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		b.Clock.(*testingclock.FakeClock).Step(ms(30))
		return a.(clienttesting.UpdateAction).GetObject(), nil
	})
	b.mustRun(t)
	if b.backoffs.statusTook != ms(30) || !b.backoffs.statusAt.Equal(now.Add(ms(30))) {
		t.Errorf("a status took %v, and was written at %v; want 30 ms, %v", b.backoffs.statusTook, b.backoffs.statusAt, now.Add(ms(30)))
	}
}

// TestPodsMissingFromLiveRead: a live read lists only selected pods, so a pod that lost the label does not count
// as deleted.
func TestPodsMissingFromLiveRead(t *testing.T) {
	b := newBench(t, newSet(1))
	listed := []*caches.Pod{newPod("listed", version("30"))}
	controller.RecordLiveRead(&b.expectations.barrier, b.replicaSets, b.rs, b.Controller.pods, listed, "50", now)
	got := b.expectations.withoutDeleted([]*caches.Pod{
		newPod("listed", version("30")), newPod("removed", version("20")), newPod("relabelled", version("20"), labelled(map[string]string{"app": "db"})),
	}, b.selects)
	if want := []string{"listed", "relabelled"}; !slices.Equal(podNames(got), want) {
		t.Errorf("pods %v, want %v", podNames(got), want)
	}
}
