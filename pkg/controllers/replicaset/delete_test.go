package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

func TestDeleteOutcomes(t *testing.T) {
	changed := func(edits ...func(*caches.Pod)) []*caches.Pod {
		return []*caches.Pod{newPod("a", append([]func(*caches.Pod){version("9")}, edits...)...)}
	}
	precondition := apierrors.NewConflict(podResource, "a", errors.New("the UID or the resourceVersion is another"))
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "a.b.c": refused`))
	onNodeN := newPod("a", onNode("n"))
	for _, tt := range []struct {
		name        string
		pod         *caches.Pod // nil: without a node
		responses   []error
		live        []*caches.Pod // found when looking after a conflict
		deletes     int
		gone        bool
		unconfirmed string // version to be deleted again, or empty
		failed      bool
		events      int
	}{
		{name: "deleted", responses: []error{nil}, deletes: 1, gone: true, events: 1},
		{name: "was gone already", responses: []error{apierrors.NewNotFound(podResource, "a")}, deletes: 1, gone: true},
		{name: "404 of a load balancer", responses: []error{apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", podResource, "a", "no backend", 0, true)},
			deletes: 1, unconfirmed: "5", failed: true, events: 1},
		{name: "rejected", responses: []error{apierrors.NewForbidden(podResource, "a", errors.New("no"))}, deletes: 1, unconfirmed: "5", failed: true, events: 1},
		{name: "rejected as a conflict", responses: []error{precondition}, live: changed(version("5")), deletes: 1, failed: true, events: 1},
		{name: "no response", responses: []error{apierrors.NewTimeoutError("slow", 0)}, deletes: 1, unconfirmed: "5", failed: true, events: 1},
		{name: "changed, and gone by now", responses: []error{precondition}, deletes: 1, gone: true},
		{name: "changed, and being deleted", responses: []error{precondition}, live: changed(deleting), deletes: 1, gone: true},
		{name: "another of its name", responses: []error{precondition}, live: changed(func(p *caches.Pod) { p.UID = "other" }), deletes: 1, gone: true},
		{name: "changed in ways that do not matter", responses: []error{precondition, nil}, live: changed(), deletes: 2, gone: true, events: 1},
		{name: "changed, then no response", responses: []error{precondition, apierrors.NewTimeoutError("slow", 0)}, live: changed(), deletes: 2, unconfirmed: "9", failed: true, events: 1},
		{name: "changed twice", responses: []error{precondition, precondition}, live: changed(), deletes: 2},
		{name: "moved to a node", responses: []error{precondition}, live: changed(onNode("n")), deletes: 1},
		{name: "given away", responses: []error{precondition}, live: changed(orphaned), deletes: 1},
		{name: "no longer selected", responses: []error{precondition}, live: changed(labelled(nil)), deletes: 1},
		{name: "finished", responses: []error{precondition}, live: changed(phase(corev1.PodFailed)), deletes: 1},

		{name: "never sent", pod: onNodeN, responses: []error{errors.New("connection refused")}, deletes: 1, failed: true, events: 1},
		{name: "stopped by the fence", pod: onNodeN, responses: []error{fmt.Errorf("not leading: %w", context.Canceled)}, deletes: 1, failed: true},
		{name: "no response, on a node", pod: onNodeN, responses: []error{apierrors.NewTimeoutError("slow", 0)}, deletes: 1, unconfirmed: "5", failed: true, events: 1},
		{name: "rejected, on a node", pod: onNodeN, responses: []error{apierrors.NewForbidden(podResource, "a", errors.New("no"))}, deletes: 1, failed: true, events: 1},
		{name: "a webhook failed, on a node", pod: onNodeN, responses: []error{webhook}, deletes: 1, failed: true, events: 1},
		{name: "a webhook failed, and the pod may have been marked before", responses: []error{webhook}, deletes: 1, unconfirmed: "5", failed: true, events: 1},
		{name: "a webhook failed, and a finalizer keeps the pod", pod: newPod("a", func(p *caches.Pod) { p.Finalizers = []string{"f"} }),
			responses: []error{webhook}, deletes: 1, failed: true, events: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(0, statusOfSize(1)), cmp.Or(tt.pod, newPod("a")))
			deletes := 0
			b.On("delete pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
				deletes++
				opts := a.(clienttesting.DeleteActionImpl).DeleteOptions
				if want := []string{"5", "9"}[min(call, 2)-1]; *opts.Preconditions.UID != "a" || *opts.Preconditions.ResourceVersion != want {
					t.Errorf("preconditions are %+v, want UID a at version %s", opts.Preconditions, want)
				}
				return &corev1.Pod{}, tt.responses[min(call, len(tt.responses))-1]
			})
			b.On("list pods", fakeapi.Returns(podList(tt.live...)))
			_, err := b.run(t.Context())
			_, gone := b.expectations.deleted["a"]
			if (err != nil) != tt.failed || deletes != tt.deletes || gone != tt.gone || b.expectations.unconfirmed["a"].version != tt.unconfirmed {
				t.Errorf("error %v, %d deletes, gone %t, to be deleted again at %q", err, deletes, gone, b.expectations.unconfirmed["a"].version)
			}
			if until := b.expectations.unconfirmed["a"].until; tt.unconfirmed != "" && !until.Equal(now.Add(outcome.MaxCompletionDelay)) {
				t.Errorf("the outcome is final at %v", until)
			}
			events := b.NewEvents()
			fakeapi.Want(t, fmt.Sprintf("number of events %q", events), len(events), tt.events)
		})
	}
}

// TestRejectedDeletesFailEachSync with the same message. See TestVaryingRejectionsWriteOneStatus.
func TestRejectedDeletesFailEachSync(t *testing.T) {
	b := newBench(t, newSet(0, statusOfSize(3)), newPod("a"), newPod("b"), newPod("c"))
	b.On("delete pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		return nil, apierrors.NewForbidden(podResource, a.(clienttesting.DeleteAction).GetName(), errors.New("by a policy"))
	})
	b.On("update replicasets/status", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		b.rs = a.(clienttesting.UpdateAction).GetObject().(*appsv1.ReplicaSet)
		return b.rs, nil
	})
	deletes := []string{"delete pods", "delete pods", "delete pods"}
	for _, want := range [][]string{append(deletes, "update replicasets/status"), deletes, deletes} {
		b.ClearActions()
		slices.Reverse(b.syncState.pods)
		b.rs = b.rs.DeepCopy()
		if _, err := b.run(t.Context()); err == nil {
			t.Error("no error")
		}
		b.Wants(t, want...)
		fakeapi.Want(t, "reason of the condition", b.rs.Status.Conditions[0].Reason, "FailedDelete")
	}
}

// TestDeletesWithoutASlotKeepTheCondition: nothing was tried, so the failure may still hold.
func TestDeletesWithoutASlotKeepTheCondition(t *testing.T) {
	b := newBench(t, newSet(0, statusOfSize(1), func(rs *appsv1.ReplicaSet) {
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedDelete"}}
	}), newPod("a"))
	b.slots, b.now = writelimit.New(clock.RealClock{}, 0), time.Time{}
	b.mustRun(t)
	b.Wants(t)
}

// TestUnconfirmedDeleteIsRepeated before other deletes, with the same precondition, and no other
// pod is deleted instead.
func TestUnconfirmedDeleteIsRepeated(t *testing.T) {
	b := newBench(t, newSet(1), newPod("a"), newPod("b", version("7")))
	b.expectations.unconfirmed["b"] = unconfirmedDelete{version: "6"}
	var deleted []string
	b.On("delete pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		deleted = append(deleted, d.Name+"@"+*d.DeleteOptions.Preconditions.ResourceVersion)
		return &corev1.Pod{}, nil
	})
	b.mustRun(t)
	if !slices.Equal(deleted, []string{"b@6"}) || len(b.expectations.unconfirmed) != 0 {
		t.Errorf("deleted %v, still unconfirmed %v", deleted, b.expectations.unconfirmed)
	}
}

// TestScaleDownReverted: a pod whose delete has an unknown outcome, and that is wanted again, is neither deleted nor
// replaced. When the delete can no longer be executed, a live read shows whether the pod
// stays.
func TestScaleDownReverted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		live  []*caches.Pod
		count int // creates after the look
	}{
		{"it stays", []*caches.Pod{newPod("a"), newPod("b"), newPod("c")}, 0},
		{"it is gone", []*caches.Pod{newPod("a"), newPod("b")}, 1},
		{"it is being deleted", []*caches.Pod{newPod("a"), newPod("b"), newPod("c", deleting)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(3, statusOfSize(3)), newPod("a"), newPod("b"), newPod("c"))
			b.expectations.unconfirmed["c"] = unconfirmedDelete{version: "5", until: now.Add(outcome.MaxCompletionDelay)}
			b.On("delete pods", func(_ int, a clienttesting.Action) (runtime.Object, error) {
				t.Errorf("%s is deleted", a.(clienttesting.DeleteAction).GetName())
				return nil, nil
			})
			b.On("list pods", fakeapi.Returns(podList(tt.live...)))
			fakeapi.Want(t, "next sync", b.mustRun(t), outcome.MaxCompletionDelay)
			b.Wants(t)
			b.now = now.Add(outcome.MaxCompletionDelay)
			b.mustRun(t)
			if creates := b.Count("create pods"); creates != tt.count || len(b.expectations.unconfirmed) != 0 {
				t.Errorf("%d creates, want %d; still unconfirmed: %v", creates, tt.count, b.expectations.unconfirmed)
			}
		})
	}
}

// TestCachedReadMissesNoPod reads the cache while the pods of creates with unknown outcome arrive: each pod is in
// the result, or its name stays taken.
func TestCachedReadMissesNoPod(t *testing.T) {
	rs := newSet(1)
	client := fake.NewClientset()
	store := caches.New(client, caches.Config{Name: t.Name()})
	b := newBench(t, rs)
	b.Controller.pods = fakeapi.Must(store.Pods())
	ctx, cancel := context.WithCancel(t.Context())
	store.Start(ctx)
	defer store.Shutdown()
	defer cancel()
	fakeapi.NoError(t, store.WaitForSync(ctx))
	for i := range 300 {
		name := fmt.Sprint("p", i)
		b.expectations.creates.start(name)
		go client.CoreV1().Pods(rs.Namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: rs.Namespace, UID: types.UID(name), Labels: rs.Spec.Selector.MatchLabels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: new(true)}},
		}}, metav1.CreateOptions{})
		for len(b.expectations.creates) > 0 {
			read := b.readCached(b.syncState).pods
			counted := slices.ContainsFunc(read, func(pod *caches.Pod) bool { return pod.Name == name })
			if !counted && len(b.expectations.creates) == 0 {
				t.Fatalf("pod %s is not counted, and its name is free", name)
			}
		}
	}
}

func TestExpectationsAreResolved(t *testing.T) {
	l := newExpectations()
	l.deleted = map[types.UID]bool{"deleted-shown": false, "deleted-terminating": true, "deleted-gone": true}
	soon, late := unconfirmedDelete{"5", now.Add(time.Second)}, unconfirmedDelete{"5", now.Add(time.Minute)}
	l.unconfirmed = map[types.UID]unconfirmedDelete{
		"perhaps-shown": late, "perhaps-soon": soon, "perhaps-terminating": soon, "perhaps-gone": late, "perhaps-changed": late, "perhaps-older": {"9", late.until},
	}
	pods := []*caches.Pod{
		newPod("made"), newPod("deleted-shown"), newPod("deleted-terminating", deleting), newPod("perhaps-shown"), newPod("perhaps-terminating", deleting),
		newPod("perhaps-soon"), newPod("perhaps-changed", version("6")), newPod("perhaps-older"),
	}
	l.update(pods, time.Time{})
	fakeapi.Want(t, "time at which an outcome is certain", l.confirmableAt(), soon.until)
	// A pod that has changed cannot be deleted by an old request.
	fakeapi.WantEqual(t, "unconfirmed", keys(l.unconfirmed), []types.UID{"perhaps-older", "perhaps-shown", "perhaps-soon"})
	for live, want := range map[time.Time]int{soon.until.Add(-1): 3, soon.until: 2} {
		copied := expectations{unconfirmed: maps.Clone(l.unconfirmed)}
		copied.update(pods, live)
		fakeapi.Want(t, fmt.Sprintf("unconfirmed deletes after a read at %v", live), len(copied.unconfirmed), want)
	}
	l.update(pods, soon.until)
	fakeapi.WantEqual(t, "deleted in the end", keys(l.deleted), []types.UID{"deleted-shown"})
	fakeapi.WantEqual(t, "unconfirmed in the end", keys(l.unconfirmed), []types.UID{"perhaps-older", "perhaps-shown"})
}

func keys[V any](m map[types.UID]V) []types.UID { return slices.Sorted(maps.Keys(m)) }

const month = 30 * 24 * time.Hour

// standing describes a pod for the order of deletion.
func standing(name, node string, p corev1.PodPhase, edits ...func(*caches.Pod)) *caches.Pod {
	base := []func(*caches.Pod){onNode(node), phase(p), createdAt(metav1.Time{}), func(pod *caches.Pod) { pod.UID = "" }}
	return newPod(name, append(base, edits...)...)
}

func restarted(regular, sidecar int32) func(*caches.Pod) {
	return func(pod *caches.Pod) { pod.Restarts, pod.SidecarRestarts = regular, sidecar }
}

// TestOrderOfDeletion: each pod is deleted before all later ones.
func TestOrderOfDeletion(t *testing.T) {
	const running, node = corev1.PodRunning, "node"
	readyFor := func(d time.Duration) func(*caches.Pod) { return readySince(ago(d)) }
	agedMonth := createdAt(ago(month))
	useCost := true
	rankIn := func(neighbours int, pod *caches.Pod) rank {
		related := make([]*caches.Pod, neighbours)
		for i := range related {
			related[i] = standing(fmt.Sprint("neighbour ", i), pod.NodeName, running)
		}
		return rankPods([]*caches.Pod{pod}, related, useCost, now)[0]
	}
	inOrder := func(ranks ...rank) {
		for i, a := range ranks {
			for _, b := range ranks[i+1:] {
				if order, back := compareRanks(a, b), compareRanks(b, a); order >= 0 || back <= 0 {
					t.Errorf("%q with %d neighbours before %q with %d: order %d, reversed %d", a.pod.Name, a.neighbours, b.pod.Name, b.neighbours, order, back)
				}
			}
		}
	}
	inOrder(
		rankIn(2, standing("not assigned to a node", "", corev1.PodPending)),
		rankIn(1, standing("not assigned to a node", "", corev1.PodPending)),
		rankIn(2, standing("pending", node, corev1.PodPending)),
		rankIn(1, standing("pending", node, corev1.PodPending)),
		rankIn(2, standing("unknown phase", node, corev1.PodUnknown)),
		rankIn(1, standing("unknown phase", node, corev1.PodUnknown)),
		rankIn(2, standing("not ready", node, running)),
		rankIn(1, standing("not ready", node, running)),
		rankIn(2, standing("ready now", node, running, readyFor(0), createdAt(ago(0)))),
		rankIn(2, standing("old, ready now", node, running, readyFor(0), agedMonth)),
		rankIn(1, standing("ready since an unknown time", node, running, readySince(metav1.Time{}))),
		rankIn(1, standing("many sidecar restarts", node, running, readyFor(0), createdAt(ago(0)), restarted(9001, 9001))),
		rankIn(1, standing("many restarts", node, running, readyFor(0), createdAt(ago(0)), restarted(9001, 0))),
		rankIn(1, standing("ready now", node, running, readyFor(0), createdAt(ago(0)))),
		rankIn(1, standing("old, ready now", node, running, readyFor(0), agedMonth)),
		rankIn(1, standing("ready for 2 h", node, running, readyFor(2*time.Hour), agedMonth)),
		rankIn(1, standing("ready for 5 h", node, running, readyFor(5*time.Hour), agedMonth)),
		rankIn(1, standing("ready for a month, sidecar restarts", node, running, readyFor(month), agedMonth, restarted(1, 1))),
		rankIn(1, standing("ready for a month, restarts", node, running, readyFor(month), agedMonth, restarted(1, 0))),
		rankIn(1, standing("ready for a month", node, running, readyFor(month), agedMonth)),
		rankIn(1, standing("cheap", node, running, readyFor(0), agedMonth, cost("10"))),
		rankIn(9, standing("dear", node, running, readyFor(0), agedMonth, cost("100"))),
	)
	useCost = false
	inOrder(
		rankIn(2, standing("dear, but the cost does not count", node, running, readyFor(0), cost("100"))),
		rankIn(1, standing("cheap", node, running, readyFor(0), cost("10"))),
	)
	aged := func(d time.Duration) func(*caches.Pod) { return createdAt(ago(d)) }
	for name, since := range map[string]func(time.Duration) func(*caches.Pod){"ready": readyFor, "created": aged} {
		a, b := rankIn(1, standing("", node, running, since(5*time.Hour))), rankIn(1, standing("", node, running, since(8*time.Hour)))
		fakeapi.Want(t, name+": order of two pods whose ages are in the same bucket", compareRanks(a, b), 0)
	}
}

func TestAllVictimsAreOrderedByName(t *testing.T) {
	pods := []*caches.Pod{newPod("c"), newPod("a", readySince(ago(time.Hour))), newPod("b")}
	fakeapi.WantEqual(t, "victims", podNames(chooseVictims(pods, pods, 3, true, now)), []string{"a", "b", "c"})
}

// TestOrderIsTotal: the choice does not depend on the order in which pods are listed, and the comparison is
// transitive. The ages and restarts are drawn so that upstream's order has cycles.
func TestOrderIsTotal(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(values ...time.Duration) metav1.Time { return ago(values[random.IntN(len(values))]) }
	for range 300 {
		pods := make([]*caches.Pod, 3+random.IntN(12))
		for i := range pods {
			pods[i] = newPod(fmt.Sprint("pod-", i), onNode(fmt.Sprint("node-", random.IntN(3))),
				readySince(pick(time.Hour, time.Hour, 70*time.Minute, 5*time.Hour, 6*time.Hour)),
				createdAt(pick(10*time.Hour, 12*time.Hour, 30*time.Hour)), restarted(int32(random.IntN(3)), int32(random.IntN(2))))
			pods[i].UID = types.UID(fmt.Sprint(random.IntN(1000), "-", i))
			if random.IntN(3) == 0 {
				pods[i].Ready = caches.Condition{}
			}
		}
		n := 1 + random.IntN(len(pods))
		want := chooseVictims(pods, pods, n, true, now)
		for range 5 {
			random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			if got := chooseVictims(pods, pods, n, true, now); !slices.Equal(got, want) {
				t.Fatalf("victims depend on the order of the pods: %v and %v", got, want)
			}
		}
		ranks := rankPods(pods, pods, true, now)
		for a := range ranks {
			for b := range ranks {
				for c := range ranks {
					if compareRanks(ranks[a], ranks[b]) < 0 && compareRanks(ranks[b], ranks[c]) < 0 && compareRanks(ranks[a], ranks[c]) >= 0 {
						t.Fatalf("%s < %s < %s, but not %[1]s < %[3]s", ranks[a].pod.Name, ranks[b].pod.Name, ranks[c].pod.Name)
					}
				}
			}
		}
	}
}

func TestDeletionCost(t *testing.T) {
	for value, want := range map[string]int32{
		"": 0, "0": 0, "10": 10, "-10": -10, "2147483647": 2147483647, "-2147483648": -2147483648, "-05": -5,
		"+10": 0, "008": 0, " 5": 0, "5 ": 0, "1.5": 0, "2147483648": 0, "-2147483649": 0, "many": 0, "00": 0, "1_0": 0,
	} {
		fakeapi.Want(t, "cost by "+value, deletionCost(map[string]string{corev1.PodDeletionCost: value}), want)
	}
	fakeapi.Want(t, "cost without the annotation", deletionCost(nil), 0)
}

func TestAgeRatios(t *testing.T) {
	aged := func(d time.Duration, ready bool) *caches.Pod {
		pod := newPod("a", createdAt(ago(d)))
		if ready {
			readySince(ago(0))(pod)
		}
		return pod
	}
	young, old, unready := aged(time.Hour, true), aged(90*time.Minute, true), aged(time.Minute, false)
	for _, tt := range []struct {
		name            string
		active, victims []*caches.Pod
		want            []float64
	}{
		{"multiples of the youngest ready pod's age", []*caches.Pod{young, old, unready}, []*caches.Pod{young, old, unready}, []float64{1, 1.5}},
		{"nothing ready", []*caches.Pod{unready}, []*caches.Pod{unready}, nil},
		{"created this instant", []*caches.Pod{aged(0, true), old}, []*caches.Pod{old}, nil},
	} {
		fakeapi.WantEqual(t, tt.name, ageRatios(tt.active, tt.victims, now), tt.want)
	}
}
