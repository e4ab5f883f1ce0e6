package replicaset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

func TestClaim(t *testing.T) {
	setDeleting := func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = new(ago(0)) }
	other := labelled(map[string]string{"app": "db"})
	type sorted struct {
		Mine, Adopt, Release, Failed []string
		Terminating                  int
	}
	for _, tt := range []struct {
		name string
		set  *appsv1.ReplicaSet
		pods []*caches.Pod
		gone map[types.UID]bool
		want sorted
	}{
		{"an owned pod, one that is no longer selected, and an orphan", newSet(2), []*caches.Pod{newPod("a"), newPod("b", other), newPod("c", orphaned)}, nil,
			sorted{Mine: []string{"a"}, Release: []string{"b"}, Adopt: []string{"c"}}},
		{"a set being deleted keeps what it has", newSet(1, setDeleting),
			[]*caches.Pod{newPod("a"), newPod("b", orphaned)}, nil, sorted{Mine: []string{"a"}}},
		{"a set being deleted releases nothing", newSet(1, setDeleting), []*caches.Pod{newPod("a", other)}, nil, sorted{}},
		{"pods being deleted are neither adopted nor released", newSet(1),
			[]*caches.Pod{newPod("a", deleting), newPod("b", orphaned, deleting), newPod("c", other, deleting)}, nil, sorted{Terminating: 1}},
		{"finished pods are neither counted, adopted nor released", newSet(1),
			[]*caches.Pod{newPod("a", phase(corev1.PodSucceeded)), newPod("b", phase(corev1.PodFailed)), newPod("c", phase(corev1.PodFailed), orphaned),
				newPod("d", phase(corev1.PodSucceeded), other)}, nil, sorted{Failed: []string{"b"}}},
		{"a kubelet reports a deleted pod as failed before it goes", newSet(1),
			[]*caches.Pod{newPod("a", deleting, phase(corev1.PodFailed)), newPod("b", phase(corev1.PodFailed)), newPod("c", phase(corev1.PodFailed))},
			map[types.UID]bool{"b": false}, sorted{Failed: []string{"c"}}},
		{"a finished pod being deleted is not terminating", newSet(1), []*caches.Pod{newPod("a", deleting, phase(corev1.PodSucceeded))}, nil, sorted{}},
		{"phases empty and Unknown are active", newSet(1),
			[]*caches.Pod{newPod("a", phase("")), newPod("b", phase(corev1.PodUnknown))}, nil, sorted{Mine: []string{"a", "b"}}},
		{"a deleted pod that the cache still shows is gone, or terminating if it takes its time", newSet(1),
			[]*caches.Pod{newPod("a", onNode("n")), newPod("b", onNode("n"))}, map[types.UID]bool{"a": false, "b": true}, sorted{Terminating: 1}},
	} {
		c := claimPods(tt.set, fakeapi.Must(metav1.LabelSelectorAsSelector(tt.set.Spec.Selector)), tt.pods, tt.gone)
		got := sorted{podNames(c.owned), podNames(c.adopt), podNames(c.release), podNames(c.failed), c.terminating}
		fakeapi.WantEqual(t, tt.name+": claim", got, tt.want)
	}
}

// TestPlanProperties: a plan stays within the burst, deletes only given pods, each pod once, and reaches
// the wanted number if the burst allows.
func TestPlanProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var pods []*caches.Pod
		unconfirmed := map[types.UID]unconfirmedDelete{}
		for i := range random.IntN(20) {
			pods = append(pods, newPod(fmt.Sprint("pod-", i)))
			if random.IntN(4) == 0 {
				unconfirmed[pods[i].UID] = unconfirmedDelete{}
			}
		}
		want, burst := random.IntN(20), 1+random.IntN(10)
		p := planReplicas(want, pods, unconfirmed, burst)
		leaving := append(chooseVictims(p.candidates, pods, p.surplus, true, now), chooseVictims(p.unconfirmed, pods, p.repeat, true, now)...)
		seen := map[types.UID]bool{}
		for _, pod := range leaving {
			if seen[pod.UID] || !slices.Contains(pods, pod) {
				t.Fatalf("pod %s is deleted twice or not ours", pod.Name)
			}
			seen[pod.UID] = true
		}
		left := len(pods) - len(leaving)
		switch {
		case p.create > burst || len(leaving) > burst || p.create > 0 && len(leaving) > 0:
			t.Fatalf("burst %d: %d creates and %d deletes", burst, p.create, len(leaving))
		case len(leaving) > 0 && left < want:
			t.Fatalf("want %d, %d pods would be left of %d", want, left, len(pods))
		case p.surplus > 0 && p.unconfirmedNeeded() > 0:
			t.Fatalf("%d new deletes while %d unconfirmed ones may be carried out", p.surplus, p.unconfirmedNeeded())
		case left+p.create > want && len(leaving) < burst:
			t.Fatalf("want %d, %d pods would be left and %d created within a burst of %d", want, left, p.create, burst)
		case left+p.create < want && p.create < burst:
			t.Fatalf("want %d, %d pods would be left and only %d created", want, left, p.create)
		}
	}
}

func TestLongestMismatch(t *testing.T) {
	all := controller.NewKeyStates[cache.ObjectName](newState)
	key := cache.NewObjectName("default", "web")
	all.For(key, "one")
	all.For(cache.NewObjectName("default", "db"), "two")
	for _, step := range []struct {
		matches bool
		want    time.Duration
	}{{false, 10 * time.Second}, {false, 10 * time.Second}, {true, 0}, {false, 7 * time.Second}} {
		now := now.Add(10*time.Second - step.want)
		all.Update(key, func(s *state) { s.recordMatch(step.matches, now) })
	}
	fakeapi.Want(t, "longest mismatch", longestMismatch(all, now.Add(10*time.Second)), 7*time.Second)
}

func TestFailedBackoff(t *testing.T) {
	failed := func(ages ...time.Duration) (pods []*caches.Pod) {
		for i, age := range ages {
			pods = append(pods, newPod(fmt.Sprint(i), createdAt(ago(age))))
		}
		return pods
	}
	repeat := func(n int, age time.Duration) []*caches.Pod { return failed(slices.Repeat([]time.Duration{age}, n)...) }
	evicted := func(pods []*caches.Pod) []*caches.Pod {
		for _, pod := range pods {
			pod.Disruption.Status = corev1.ConditionTrue
		}
		return pods
	}
	for _, tt := range []struct {
		name    string
		failed  []*caches.Pod
		retried time.Duration // time since a retry, 0 without one
		want    int
		held    int
		delay   time.Duration
	}{
		{name: "none"},
		{name: "three are tolerated", failed: repeat(3, 0)},
		{name: "four wait ten seconds", failed: repeat(4, 0), held: 4, delay: 10 * time.Second},
		{name: "counted from the newest", failed: failed(0, 9*time.Second, 8*time.Second, 4*time.Second), held: 4, delay: 10 * time.Second},
		{name: "part of it has passed", failed: repeat(4, 4*time.Second), held: 4, delay: 6 * time.Second},
		{name: "all of it has passed", failed: repeat(4, 10*time.Second)},
		{name: "created together, failed once", failed: repeat(500, 0), held: 500, delay: 10 * time.Second},
		{name: "retried long ago", failed: repeat(5, 0), retried: failedWindow, held: 5, delay: 10 * time.Second},
		{name: "after a retry, five wait twice as long", failed: repeat(5, 0), retried: time.Second, held: 5, delay: 20 * time.Second},
		{name: "never longer than five minutes", failed: repeat(500, 0), retried: time.Second, held: 500, delay: 5 * time.Minute},
		{name: "of many replicas a tenth is tolerated", failed: repeat(100, 0), want: 1000},
		{name: "and no more", failed: repeat(101, 0), want: 1000, held: 101, delay: 10 * time.Second},
		{name: "a third of that doubles the delay", failed: repeat(134, 0), retried: time.Second, want: 1000, held: 134, delay: 20 * time.Second},
		{name: "old ones do not count", failed: append(repeat(9, 10*time.Minute), repeat(3, 0)...)},
		{name: "evicted pods do not count", failed: append(evicted(repeat(9, 0)), repeat(3, 0)...)},
	} {
		var b backoffs
		if tt.retried > 0 {
			b.retriedFailed = now.Add(-tt.retried)
		}
		if held, delay := b.failedBackoff(tt.failed, tt.want, now); held != tt.held || delay != tt.delay {
			t.Errorf("%s: %d creates wait for %v, want %d for %v", tt.name, held, delay, tt.held, tt.delay)
		}
	}
}

func TestCount(t *testing.T) {
	full := map[string]string{"app": "web", "tier": "front"}
	wantsFull := func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = full }
	anHour := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }
	ready := readySince(ago(0))
	type counts struct{ Replicas, FullyLabeled, Ready, Available int32 }
	for _, tt := range []struct {
		name string
		set  *appsv1.ReplicaSet
		pods []*caches.Pod
		want counts
	}{
		{"one with all labels", newSet(2, wantsFull), []*caches.Pod{newPod("a", labelled(full), ready)}, counts{1, 1, 1, 1}},
		{"one with, one without", newSet(2, wantsFull), []*caches.Pod{newPod("a", ready), newPod("b", labelled(full), ready)}, counts{2, 1, 2, 2}},
		{"more labels than the template has", newSet(1), []*caches.Pod{newPod("a", labelled(full))}, counts{1, 1, 0, 0}},
		{"not ready", newSet(1), []*caches.Pod{newPod("a", phase(corev1.PodPending))}, counts{1, 1, 0, 0}},
		{"ready, not yet available", newSet(1, anHour), []*caches.Pod{newPod("a", ready)}, counts{1, 1, 1, 0}},
		{"available from this moment", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(ago(time.Hour)))}, counts{1, 1, 1, 1}},
		{"available in a nanosecond", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(ago(time.Hour-1)))}, counts{1, 1, 1, 0}},
		{"ready since an unknown time", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(metav1.Time{}))}, counts{1, 1, 1, 0}},
	} {
		c := countPods(tt.set, tt.pods, now)
		fakeapi.Want(t, tt.name, counts{c.Replicas, c.FullyLabeledReplicas, c.ReadyReplicas, c.AvailableReplicas}, tt.want)
	}
}

func TestConditions(t *testing.T) {
	earlier := ago(time.Hour)
	condition := func(status corev1.ConditionStatus, reason, message string, since metav1.Time) appsv1.ReplicaSetCondition {
		return appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: status, Reason: reason, Message: message, LastTransitionTime: since}
	}
	foreign := appsv1.ReplicaSetCondition{Type: "Foreign", Status: corev1.ConditionTrue, Reason: "Test", LastTransitionTime: earlier}
	denied := errors.New("denied")
	type list = []appsv1.ReplicaSetCondition
	for _, tt := range []struct {
		name string
		old  list
		a    applyResult
		want list
	}{
		{"none, nothing failed", nil, applyResult{}, nil},
		{"creating failed", nil, applyResult{err: denied, reason: "FailedCreate"}, list{condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"deleting failed", nil, applyResult{err: denied, reason: "FailedDelete"}, list{condition(corev1.ConditionTrue, "FailedDelete", "denied", ago(0))}},
		{"nothing failed any more", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}, applyResult{}, list{}},
		{"nothing was tried", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}, applyResult{deferred: true},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}},
		{"failed again for another reason", list{condition(corev1.ConditionTrue, "FailedDelete", "gone", earlier)}, applyResult{err: denied, reason: "FailedCreate"},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}},
		{"a false one turns true now", list{condition(corev1.ConditionFalse, "", "", earlier)}, applyResult{err: denied, reason: "FailedCreate"},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"conditions of others stay when it is set", list{foreign}, applyResult{err: denied, reason: "FailedCreate"},
			list{foreign, condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"and when it is removed", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier), foreign}, applyResult{}, list{foreign}},
		{"and otherwise", list{foreign}, applyResult{}, list{foreign}},
	} {
		before := append(list(nil), tt.old...)
		got := newConditions(tt.old, tt.a, now)
		fakeapi.WantEqual(t, tt.name+": conditions", got, tt.want)
		fakeapi.WantEqual(t, tt.name+": the old conditions were changed", append(list(nil), tt.old...), before)
	}
}
