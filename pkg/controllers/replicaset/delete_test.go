package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
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
		name       string
		pod        *caches.Pod // nil: without a node
		answers    []error
		live       []*caches.Pod // found when looking after a conflict
		deletes    int
		gone       bool
		unanswered string // version to be deleted again, or empty
		failed     bool
		told       int
	}{
		{name: "deleted", answers: []error{nil}, deletes: 1, gone: true, told: 1},
		{name: "was gone already", answers: []error{apierrors.NewNotFound(podResource, "a")}, deletes: 1, gone: true},
		{name: "404 of a load balancer", answers: []error{apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", podResource, "a", "no backend", 0, true)},
			deletes: 1, unanswered: "5", failed: true, told: 1},
		{name: "refused", answers: []error{apierrors.NewForbidden(podResource, "a", errors.New("no"))}, deletes: 1, unanswered: "5", failed: true, told: 1},
		{name: "refused as a conflict", answers: []error{precondition}, live: changed(version("5")), deletes: 1, failed: true, told: 1},
		{name: "not answered", answers: []error{apierrors.NewTimeoutError("slow", 0)}, deletes: 1, unanswered: "5", failed: true, told: 1},
		{name: "changed, and gone by now", answers: []error{precondition}, deletes: 1, gone: true},
		{name: "changed, and being deleted", answers: []error{precondition}, live: changed(deleting), deletes: 1, gone: true},
		{name: "another of its name", answers: []error{precondition}, live: changed(func(p *caches.Pod) { p.UID = "other" }), deletes: 1, gone: true},
		{name: "changed in ways that do not matter", answers: []error{precondition, nil}, live: changed(), deletes: 2, gone: true, told: 1},
		{name: "changed, then not answered", answers: []error{precondition, apierrors.NewTimeoutError("slow", 0)}, live: changed(), deletes: 2, unanswered: "9", failed: true, told: 1},
		{name: "changed twice", answers: []error{precondition, precondition}, live: changed(), deletes: 2},
		{name: "moved to a node", answers: []error{precondition}, live: changed(onNode("n")), deletes: 1},
		{name: "given away", answers: []error{precondition}, live: changed(orphaned), deletes: 1},
		{name: "no longer selected", answers: []error{precondition}, live: changed(labelled(nil)), deletes: 1},
		{name: "finished", answers: []error{precondition}, live: changed(phase(corev1.PodFailed)), deletes: 1},

		{name: "never sent", pod: onNodeN, answers: []error{errors.New("connection refused")}, deletes: 1, failed: true, told: 1},
		{name: "stopped by the fence", pod: onNodeN, answers: []error{fmt.Errorf("not leading: %w", context.Canceled)}, deletes: 1, failed: true},
		{name: "not answered, on a node", pod: onNodeN, answers: []error{apierrors.NewTimeoutError("slow", 0)}, deletes: 1, unanswered: "5", failed: true, told: 1},
		{name: "refused, on a node", pod: onNodeN, answers: []error{apierrors.NewForbidden(podResource, "a", errors.New("no"))}, deletes: 1, failed: true, told: 1},
		{name: "a webhook failed, on a node", pod: onNodeN, answers: []error{webhook}, deletes: 1, failed: true, told: 1},
		{name: "a webhook failed, and the pod may have been marked before", answers: []error{webhook}, deletes: 1, unanswered: "5", failed: true, told: 1},
		{name: "a webhook failed, and a finalizer keeps the pod", pod: newPod("a", func(p *caches.Pod) { p.Finalizers = []string{"f"} }),
			answers: []error{webhook}, deletes: 1, failed: true, told: 1},
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
				return &corev1.Pod{}, tt.answers[min(call, len(tt.answers))-1]
			})
			b.On("list pods", fakeapi.Returns(podList(tt.live...)))
			_, err := b.run(t.Context())
			_, gone := b.expectations.deleted["a"]
			if (err != nil) != tt.failed || deletes != tt.deletes || gone != tt.gone || b.expectations.unconfirmed["a"].version != tt.unanswered {
				t.Errorf("error %v, %d deletes, gone %t, to be deleted again at %q", err, deletes, gone, b.expectations.unconfirmed["a"].version)
			}
			if until := b.expectations.unconfirmed["a"].until; tt.unanswered != "" && !until.Equal(now.Add(outcome.MaxCompletionDelay)) {
				t.Errorf("the outcome is final at %v", until)
			}
			if told := b.NewEvents(); len(told) != tt.told {
				t.Errorf("events are %v, want %d", told, tt.told)
			}
		})
	}
}

// TestRefusedDeletesFailEachSync with the same message: with another message each sync would write a status
// and requeue the ReplicaSet.
func TestRefusedDeletesFailEachSync(t *testing.T) {
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
	}
}

// TestUnansweredDeleteIsSentAgain before other deletes, with the same precondition, and no other
// pod is deleted instead.
func TestUnansweredDeleteIsSentAgain(t *testing.T) {
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
		t.Errorf("deleted %v, still unanswered %v", deleted, b.expectations.unconfirmed)
	}
}

// TestScaleDownTakenBack: a pod whose delete has an unknown outcome, and that is wanted again, is neither deleted nor
// replaced. When the delete can no longer be executed, a live read shows whether the pod
// stays.
func TestScaleDownTakenBack(t *testing.T) {
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
			if result, err := b.run(t.Context()); err != nil || result.RequeueAfter != outcome.MaxCompletionDelay {
				t.Errorf("at once: result %+v, error %v, want another look after %v", result, err, outcome.MaxCompletionDelay)
			}
			b.Wants(t)
			b.now = now.Add(outcome.MaxCompletionDelay)
			b.mustRun(t)
			if creates := b.Count("create pods"); creates != tt.count || len(b.expectations.unconfirmed) != 0 {
				t.Errorf("%d creates, want %d; still unanswered: %v", creates, tt.count, b.expectations.unconfirmed)
			}
		})
	}
}
