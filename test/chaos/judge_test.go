package main

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
	"minikcm/test/controlplane"
)

func TestScheduleRepeatsWithTheSeed(t *testing.T) {
	draw := func(seed uint64) []step {
		return (&rig{options: options{seed: seed, length: time.Minute, managers: 3}}).drawSchedule().steps
	}
	same := func(a, b []step) bool {
		return slices.EqualFunc(a, b, func(x, y step) bool {
			return x.at == y.at && x.lasts == y.lasts && x.slot == y.slot && x.seed == y.seed && x.kind.name == y.kind.name
		})
	}
	if len(draw(7)) == 0 || !same(draw(7), draw(7)) || same(draw(7), draw(8)) {
		t.Errorf("seed 7 draws %d faults; they must be the same again, and others with another seed", len(draw(7)))
	}
}

func TestJudgeSet(t *testing.T) {
	rs := controlplane.ReplicaSet("ns", "web", 1, func(rs *appsv1.ReplicaSet) {
		rs.UID = "set"
		rs.Status = appsv1.ReplicaSetStatus{Replicas: 1, FullyLabeledReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	})
	mine := func(edits ...func(*corev1.Pod)) corev1.Pod {
		p := controlplane.Pod("ns", "p", map[string]string{"app": "web"}, edits...)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return *p
	}
	orphan := *controlplane.Pod("ns", "o", map[string]string{"app": "web"})
	for _, tt := range []struct {
		name string
		pods []corev1.Pod
		edit func(*appsv1.ReplicaSet)
		good bool
	}{
		{"as it should be", []corev1.Pod{mine()}, nil, true},
		{"none", nil, nil, false},
		{"one too many", []corev1.Pod{mine(), mine()}, nil, false},
		{"orphan", []corev1.Pod{mine(), orphan}, nil, false},
		{"not released", []corev1.Pod{mine(func(p *corev1.Pod) { p.Labels["app"] = "x" })}, nil, false},
		{"status of before", []corev1.Pod{mine()}, func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas = 0 }, false},
		{"generation of before", []corev1.Pod{mine()}, func(rs *appsv1.ReplicaSet) { rs.Generation = 2 }, false},
	} {
		rs := rs.DeepCopy()
		if tt.edit != nil {
			tt.edit(rs)
		}
		var got complaints
		if got.judgeSet(rs, tt.pods, func(string) bool { return false }); (len(got) == 0) != tt.good {
			t.Errorf("%s: complaints %v, want none: %v", tt.name, got, tt.good)
		}
	}
}

func TestOutageCountsOnceAndOnlyWithin(t *testing.T) {
	day := time.Unix(1e9, 0)
	s := span{from: day, to: day.Add(10 * time.Second)}
	fakeapi.Want(t, "overlap", s.overlap(day.Add(8*time.Second), day.Add(20*time.Second)), 2*time.Second)
	fakeapi.Want(t, "overlap of one that goes on", span{from: day}.overlap(day.Add(-time.Second), day.Add(time.Second)), time.Second)
}

func TestADeleteTakesEffectOnceAndNotBefore(t *testing.T) {
	day := time.Unix(1e9, 0)
	deletes := map[string][]time.Time{"ns/p": {day}}
	for _, tt := range []struct {
		name string
		key  string
		seen time.Duration
		want bool
	}{
		{"another pod", "ns/q", time.Second, false},
		{"before", "ns/p", -time.Second, false},
		{"long after", "ns/p", 11 * time.Second, false},
		{"soon after", "ns/p", time.Second, true},
		{"again", "ns/p", 2 * time.Second, false},
	} {
		fakeapi.Want(t, tt.name, takeDelete(deletes, tt.key, day.Add(tt.seen)), tt.want)
	}
}

func TestWronglyCollected(t *testing.T) {
	state := func(version int64, deleted, terminating bool, finalizers ...string) change {
		rs := controlplane.ReplicaSet("ns", "web", 1)
		rs.UID, rs.Finalizers = "owner", finalizers
		if terminating {
			rs.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
		}
		return change{version: version, deleted: deleted, object: rs}
	}
	refs := []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "owner"}}
	for _, tt := range []struct {
		name    string
		created int64
		changes []change
		good    bool
	}{
		{"its owner is gone", 2, []change{state(1, false, false), state(5, true, false)}, true},
		{"its owner goes later", 2, []change{state(1, false, false), state(11, true, false)}, false},
		{"its owner waits", 2, []change{state(1, false, false), state(5, false, true, metav1.FinalizerDeleteDependents)}, true},
		{"its owner is held by another finalizer", 2, []change{state(1, false, false), state(5, false, true, "x/y")}, false},
		{"its owner is about to leave it behind", 2, []change{state(1, false, false), state(5, false, true, metav1.FinalizerOrphanDependents)}, false},
		{"its owner has left it behind", 2, []change{state(5, false, true, metav1.FinalizerOrphanDependents), state(6, true, true)}, false},
		{"it was created after its owner had gone", 7, []change{state(5, false, true, metav1.FinalizerOrphanDependents), state(6, true, true)}, true},
		{"its owner was never seen", 2, nil, true},
	} {
		text := wronglyCollected(refs, changesByUID(&history{changes: tt.changes}), tt.created, 10)
		if (text == "") != tt.good {
			t.Errorf("%s: %q", tt.name, text)
		}
	}
}

func TestJudgeGarbage(t *testing.T) {
	rs := *controlplane.ReplicaSet("ns", "web", 1, func(rs *appsv1.ReplicaSet) { rs.UID = "set" })
	pod := func(owner string) corev1.Pod {
		p := *controlplane.Pod("ns", "p", nil)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: types.UID(owner), BlockOwnerDeletion: new(true)}}
		return p
	}
	deleted := func(finalizer string) appsv1.ReplicaSet {
		gone := *rs.DeepCopy()
		gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{}, []string{finalizer}
		return gone
	}
	for _, tt := range []struct {
		name string
		pods []corev1.Pod
		sets []appsv1.ReplicaSet
		good bool
	}{
		{"owned", []corev1.Pod{pod("set")}, []appsv1.ReplicaSet{rs}, true},
		{"its owner is gone", []corev1.Pod{pod("another")}, []appsv1.ReplicaSet{rs}, false},
		{"an owner waits for it", []corev1.Pod{pod("set")}, []appsv1.ReplicaSet{deleted(metav1.FinalizerDeleteDependents)}, true},
		{"an owner waits for nothing", nil, []appsv1.ReplicaSet{deleted(metav1.FinalizerDeleteDependents)}, false},
		{"an owner does not leave orphans", []corev1.Pod{pod("set")}, []appsv1.ReplicaSet{deleted(metav1.FinalizerOrphanDependents)}, false},
	} {
		var wrong complaints
		if wrong.judgeGarbage(tt.pods, tt.sets, nil); (len(wrong) == 0) != tt.good {
			t.Errorf("%s: %v", tt.name, wrong)
		}
	}
}
