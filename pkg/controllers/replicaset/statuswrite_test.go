package replicaset

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

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
		{"conflict with other numbers, which are newer", []error{conflicted}, func(rs *appsv1.ReplicaSet) {
			rs.ResourceVersion, rs.Status.Replicas, rs.Status.ReadyReplicas = "11", 1, 1
		}, false, []string{"update replicasets/status", "get replicasets"}},
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
					t.Error("the second try drops a condition of another writer")
				}
				return sent, tt.answers[min(call, len(tt.answers))-1]
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

// TestRejectedStatusIsRepeatedWithTheTemplate: admission may require a template, which the cache lacks for a
// ReplicaSet that wants no pods.
func TestRejectedStatusIsRepeatedWithTheTemplate(t *testing.T) {
	b := newBench(t, newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{UID: "digest"}}
	}))
	b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if template := sent.Spec.Template; template.UID != "" || len(template.Spec.Containers) == 0 {
			return nil, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "replicasets"}, "web", errors.New("no containers"))
		}
		return sent, nil
	})
	b.on("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		return newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}} }), nil
	})
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// TestStatusAfterATakeOver: numbers of an earlier leader that a late cache does not show stay until a live
// read.
func TestStatusAfterATakeOver(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   controller.Versions
		want []string
	}{
		{"the caches may be late", versions("99", "100"), []string{"get replicasets", "list pods"}},
		{"the caches know all that was before", versions("100", "100"), []string{"update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1, statusOfSize(1), func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = 1, 1 }), newPod("a"))
			b.versions = tt.at
			b.baselineAt(t, "100", "100")
			b.on("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				ready := corev1.Pod{ObjectMeta: newPod("a").ObjectMeta}
				ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []corev1.Pod{ready}}, nil
			})
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.wants(t, tt.want...)
		})
	}
}

// TestServerWithoutTerminatingReplicas: an API server that drops the field gets no status because of that
// field alone, for any ReplicaSet. Other statuses have the field, because another API server may keep it.
func TestServerWithoutTerminatingReplicas(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"))
	b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		stored := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
		if stored.Status.TerminatingReplicas == nil {
			t.Error("a status lacks the field")
		}
		stored.Status.TerminatingReplicas = nil
		b.rs = stored
		return stored, nil
	})
	run := func() {
		t.Helper()
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run()
	*b.backoffs, *b.expectations = backoffs{}, newExpectations() // as the numbers of another ReplicaSet
	run()
	b.wants(t, "update replicasets/status")
	b.rs.Status.ReadyReplicas = 1
	run()
	b.wants(t, "update replicasets/status", "update replicasets/status")
}

// TestAvailabilityRecheck: the key is requeued at the time at which the pod becomes available, as upstream:
// 700 ms for a pod ready for 4.3 s of 5.
func TestAvailabilityRecheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *caches.Pod
		late int // milliseconds that the status write took
		want int // milliseconds
	}{
		{"becomes available", newPod("a", readySince(ago(4300_000_000))), 0, 700},
		{"the status write took a while", newPod("a", readySince(ago(4300_000_000))), 200, 500},
		{"the moment has passed meanwhile", newPod("a", readySince(ago(4300_000_000))), 900, 1},
		{"nobody knows since when it is ready", newPod("a", readySince(metav1.Time{})), 0, 5000},
		{"available, so it is only the status write that nothing shows yet", newPod("a", readySince(ago(5000_000_000))), 0, 30_000},
		{"not ready, likewise", newPod("a"), 0, 30_000},
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
			if result.RequeueAfter != want {
				t.Errorf("look again after %v, want %v", result.RequeueAfter, want)
			}
		})
	}
}

// TestFewerEndingPodsAreToldAtTheirPace: statuses with fewer terminating pods are paced, except the last
// status.
func TestFewerEndingPodsAreToldAtTheirPace(t *testing.T) {
	last := statusOfSize(1)
	for _, tt := range []struct {
		name  string
		edits []func(*appsv1.ReplicaSet)
		since int // milliseconds since the last status
		wait  int // milliseconds; 0: written
	}{
		{"fewer", nil, 300, 700},
		{"fewer, long after the last status", nil, 1000, 0},
		{"more", []func(*appsv1.ReplicaSet){ending(0)}, 300, 0},
		{"not told so far", []func(*appsv1.ReplicaSet){func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = nil }}, 300, 0},
		{"another number with it", []func(*appsv1.ReplicaSet){func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas = 1 }}, 300, 0},
		{"the generation with it", []func(*appsv1.ReplicaSet){func(rs *appsv1.ReplicaSet) { rs.Generation++ }}, 300, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1, append([]func(*appsv1.ReplicaSet){last, ending(3)}, tt.edits...)...), newPod("a"), newPod("b", deleting), newPod("c", deleting))
			b.backoffs.statusAt = now.Add(-ms(tt.since))
			result, err := b.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.wait > 0 {
				b.wants(t)
				if result.RequeueAfter != ms(tt.wait) {
					t.Errorf("again after %v, want %v", result.RequeueAfter, ms(tt.wait))
				}
				return
			}
			b.wants(t, "update replicasets/status")
		})
	}
	t.Run("none is left", func(t *testing.T) {
		b := newBench(t, newSet(1, last, ending(1)), newPod("a"))
		b.backoffs.statusAt = now
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.wants(t, "update replicasets/status")
	})
}

// TestMoreReadyPodsAreToldAtThePaceOfTheAPIServer: statuses with more ready pods are paced if a controller
// adds the numbers up, except the last status.
func TestMoreReadyPodsAreToldAtThePaceOfTheAPIServer(t *testing.T) {
	ready := func(pods int32) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = pods, pods }
	}
	desired := func(pods, most string) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) {
			rs.Annotations = map[string]string{"deployment.kubernetes.io/desired-replicas": pods, "deployment.kubernetes.io/max-replicas": most}
		}
	}
	slow := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }
	owned := func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&appsv1.Deployment{}, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	}
	for _, tt := range []struct {
		name  string
		edits []func(*appsv1.ReplicaSet)
		pods  int // ready
		took  int // milliseconds, the last status
		since int // milliseconds since then
		wait  int // milliseconds; 0: written
		size  int
	}{
		{"one more", []func(*appsv1.ReplicaSet){owned, ready(1)}, 2, 5, 300, 500, 15},
		{"one more, a while after the last status", []func(*appsv1.ReplicaSet){owned, ready(1)}, 2, 5, 800, 0, 15},
		{"the API server is quick", []func(*appsv1.ReplicaSet){owned, ready(1)}, 2, 0, 0, 0, 15},
		{"the API server hardly answers", []func(*appsv1.ReplicaSet){owned, ready(1)}, 2, 60_000, 300, 1700, 15},
		{"of few pods each counts", []func(*appsv1.ReplicaSet){owned, ready(1)}, 2, 20, 300, 0, 14},
		{"few of a large Deployment", []func(*appsv1.ReplicaSet){owned, ready(1), desired("50", "63")}, 13, 5, 300, 500, 14},
		{"of a small surge each counts", []func(*appsv1.ReplicaSet){owned, ready(20), desired("100", "107")}, 21, 5, 300, 0, 50},
		{"of a large surge not", []func(*appsv1.ReplicaSet){owned, ready(20), desired("100", "108")}, 21, 5, 300, 500, 50},
		{"many of a small Deployment", []func(*appsv1.ReplicaSet){owned, ready(1), desired("14", "18")}, 2, 10, 300, 0, 15},
		{"less than a third", []func(*appsv1.ReplicaSet){owned, ready(10)}, 26, 5, 300, 500, 50},
		{"a third", []func(*appsv1.ReplicaSet){owned, ready(10)}, 27, 10, 300, 0, 50},
		{"no owner", []func(*appsv1.ReplicaSet){ready(1)}, 2, 20, 300, 0, 15},
		{"all are ready", []func(*appsv1.ReplicaSet){owned, ready(1)}, 15, 20, 300, 0, 15},
		{"all are ready, though not available", []func(*appsv1.ReplicaSet){owned, ready(0), slow}, 15, 20, 300, 0, 15},
		{"fewer are", []func(*appsv1.ReplicaSet){owned, ready(2)}, 1, 20, 300, 0, 15},
		{"the generation with it", []func(*appsv1.ReplicaSet){owned, ready(1), func(rs *appsv1.ReplicaSet) { rs.Generation++ }}, 2, 20, 300, 0, 15},
		{"fewer are ending, too", []func(*appsv1.ReplicaSet){owned, ready(1), ending(1)}, 2, 20, 300, 0, 15},
		{"more pods, too", []func(*appsv1.ReplicaSet){owned, ready(1), func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = 14 }}, 2, 5, 300, 500, 15},
		{"more pods of another generation", []func(*appsv1.ReplicaSet){owned, ready(1), func(rs *appsv1.ReplicaSet) { rs.Generation++; rs.Status.Replicas = 14 }}, 2, 5, 300, 500, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pods []*caches.Pod
			for i := range tt.size {
				pods = append(pods, newPod(fmt.Sprint(i)))
				if i < tt.pods {
					pods[i].Ready = caches.Condition{Status: corev1.ConditionTrue, Since: metav1.NewTime(now)}
				}
			}
			b := newBench(t, newSet(int32(tt.size), append([]func(*appsv1.ReplicaSet){statusOfSize(int32(tt.size))}, tt.edits...)...), pods...)
			b.backoffs.statusAt, b.backoffs.statusTook = now.Add(-ms(tt.since)), ms(tt.took)
			result, err := b.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.wait == 0 {
				b.wants(t, "update replicasets/status")
				return
			}
			b.wants(t)
			if result.RequeueAfter != ms(tt.wait) {
				t.Errorf("again after %v, want %v", result.RequeueAfter, ms(tt.wait))
			}
		})
	}
}

// TestNoStatusForASizeThatIsPast: the API server would return a conflict, and the live read after that
// would be one more request.
func TestNoStatusForASizeThatIsPast(t *testing.T) { synctest.Test(t, noStatusForASizeThatIsPast) }

func noStatusForASizeThatIsPast(t *testing.T) {
	newer := newSet(2, func(rs *appsv1.ReplicaSet) { rs.Generation++ })
	store := caches.New(fakeapi.NewClientset(t, newer), caches.Config{Name: "newer"})
	b := newBenchWith(t, func(d *Deps) {
		sets, err := store.ReplicaSets()
		if err != nil {
			t.Fatal(err)
		}
		d.ReplicaSets = sets
	}, newSet(1), newPod("a"))
	defer fakeapi.Fill(t, store)()
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants(t)

	// After a long sync the numbers are written beside the newer spec.
	b.task.now = now.Add(-longSync)
	b.on("update replicasets/status", func(call int, a clienttesting.Action) (runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		if call == 1 {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "replicasets"}, "web", errors.New("newer"))
		}
		if *sent.Spec.Replicas != 2 || sent.Status.Replicas != 1 || sent.Status.ObservedGeneration != b.rs.Generation {
			t.Errorf("sent %+v", sent)
		}
		return sent, nil
	})
	b.on("get replicasets", func(int, clienttesting.Action) (runtime.Object, error) { return newer, nil })
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants(t, "update replicasets/status", "get replicasets", "update replicasets/status")
}

// ending sets the number of terminating pods of the status.
func ending(pods int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = &pods }
}

// TestStatusCountsWhatASyncWasAnswered: confirmed creates and deletes count, so each change of the size has
// one status.
func TestStatusCountsWhatASyncWasAnswered(t *testing.T) {
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
		{"created", 3, nil, fails(nil), false, 3, 0},
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
		{"refused", 3, nil, fails(apierrors.NewForbidden(podResource, "", errors.New("quota"))), true, 0, 0},
		{"deleted, and gone at once", 1, []*caches.Pod{newPod("a"), newPod("b"), newPod("c")}, fails(nil), false, 1, 0},
		{"deleted, and ending", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node")), newPod("c", onNode("node"))}, fails(nil), false, 1, 2},
		{"deleted by somebody else", 1, []*caches.Pod{newPod("a"), newPod("b")}, fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"deleted by somebody else, from a node", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fails(apierrors.NewNotFound(podResource, "b")), false, 1, 0},
		{"being deleted by somebody else", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))},
			fails(apierrors.NewConflict(podResource, "b", errors.New("another version"))), false, 1, 1},
		{"deleted without an answer", 1, []*caches.Pod{newPod("a", onNode("node")), newPod("b", onNode("node"))}, fails(unanswered), true, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(tt.size), tt.pods...)
			b.on("create pods", tt.answer)
			b.on("delete pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				if _, err := tt.answer(call, a); err != nil {
					return nil, err
				}
				return &corev1.Pod{}, nil
			})
			b.on("list pods", func(_ int, a clienttesting.Action) (runtime.Object, error) { // after a conflict
				name, _ := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
				return &corev1.PodList{Items: []corev1.Pod{*apiPod(newPod(name, onNode("node"), deleting))}}, nil
			})
			var told []appsv1.ReplicaSetStatus
			b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
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

// TestOneStatusForEachSize: when the cache shows the created pods, the status is already right.
func TestOneStatusForEachSize(t *testing.T) {
	b := newBench(t, newSet(2))
	var made []*caches.Pod
	b.on("create pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		pod := newPod(a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name)
		made = append(made, pod)
		return apiPod(pod), nil
	})
	b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		b.rs = a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet).DeepCopy()
		return b.rs, nil
	})
	for range 2 {
		if _, err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.pods = made
	}
	b.wants(t, "create pods", "create pods", "update replicasets/status")
}

func TestStatusDurationIsRecorded(t *testing.T) {
	clk := testingclock.NewFakeClock(now)
	b := newBenchWith(t, func(d *Deps) { d.Clock = clk }, newSet(1), newPod("a"))
	b.on("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		clk.Step(ms(30))
		return a.(clienttesting.UpdateAction).GetObject(), nil
	})
	if _, err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.backoffs.statusTook != ms(30) || !b.backoffs.statusAt.Equal(now.Add(ms(30))) {
		t.Errorf("a status took %v, and was written at %v; want 30 ms, %v", b.backoffs.statusTook, b.backoffs.statusAt, now.Add(ms(30)))
	}
}

// TestPodsMissingFromLiveRead: a live read lists only selected pods, so a pod that lost the label does not count
// as deleted.
func TestPodsMissingFromLiveRead(t *testing.T) {
	b := newBench(t, newSet(1))
	listed := []*caches.Pod{newPod("listed", version("30"))}
	controller.RecordLiveRead(&b.expectations.barrier, b.deps.ReplicaSets, b.rs, b.deps.Pods, listed, "50", now)
	got := b.expectations.withoutDeleted([]*caches.Pod{
		newPod("listed", version("30")), newPod("removed", version("20")), newPod("relabelled", version("20"), labelled(map[string]string{"app": "db"})),
	}, b.selects)
	if want := []string{"listed", "relabelled"}; !slices.Equal(uids(got), want) {
		t.Errorf("pods %v, want %v", uids(got), want)
	}
}
