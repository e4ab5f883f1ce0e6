package replicaset

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
)

func TestCount(t *testing.T) {
	full := map[string]string{"app": "web", "tier": "front"}
	wantsFull := func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = full }
	anHour := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 3600 }
	ready := readySince(ago(0))
	for _, tt := range []struct {
		name        string
		set         *appsv1.ReplicaSet
		pods        []*caches.Pod
		terminating int // -1: the gate is off
		want        counts
	}{
		{"one with all labels", newSet(2, wantsFull), []*caches.Pod{newPod("a", labelled(full), ready)}, -1,
			counts{replicas: 1, fullyLabeled: 1, ready: 1, available: 1}},
		{"one without", newSet(2, wantsFull), []*caches.Pod{newPod("a", ready)}, -1, counts{replicas: 1, ready: 1, available: 1}},
		{"two with all labels", newSet(2, wantsFull), []*caches.Pod{newPod("a", labelled(full), ready), newPod("b", labelled(full), ready)}, -1,
			counts{replicas: 2, fullyLabeled: 2, ready: 2, available: 2}},
		{"two, none terminating", newSet(2), []*caches.Pod{newPod("a", ready), newPod("b", ready)}, 0,
			counts{replicas: 2, fullyLabeled: 2, ready: 2, available: 2, terminating: new(int32(0))}},
		{"two without all labels", newSet(2, wantsFull), []*caches.Pod{newPod("a", ready), newPod("b", ready)}, -1,
			counts{replicas: 2, ready: 2, available: 2}},
		{"one with, one without", newSet(2, wantsFull), []*caches.Pod{newPod("a", ready), newPod("b", labelled(full), ready)}, -1,
			counts{replicas: 2, fullyLabeled: 1, ready: 2, available: 2}},
		{"more labels than the template has", newSet(1), []*caches.Pod{newPod("a", labelled(full))}, -1, counts{replicas: 1, fullyLabeled: 1}},
		{"not ready", newSet(1), []*caches.Pod{newPod("a", phase(corev1.PodPending))}, -1, counts{replicas: 1, fullyLabeled: 1}},
		{"ready, not yet available", newSet(1, anHour), []*caches.Pod{newPod("a", ready)}, -1, counts{replicas: 1, fullyLabeled: 1, ready: 1}},
		{"available from this moment", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(ago(time.Hour)))}, -1,
			counts{replicas: 1, fullyLabeled: 1, ready: 1, available: 1}},
		{"available in a nanosecond", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(ago(time.Hour-1)))}, -1,
			counts{replicas: 1, fullyLabeled: 1, ready: 1}},
		{"available for long", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(ago(2*time.Hour)))}, -1,
			counts{replicas: 1, fullyLabeled: 1, ready: 1, available: 1}},
		{"ready since nobody knows", newSet(1, anHour), []*caches.Pod{newPod("a", readySince(metav1.Time{}))}, -1,
			counts{replicas: 1, fullyLabeled: 1, ready: 1}},
		{"two terminating", newSet(1), []*caches.Pod{newPod("a", ready)}, 2,
			counts{replicas: 1, fullyLabeled: 1, ready: 1, available: 1, terminating: new(int32(2))}},
	} {
		got := countPods(tt.set, tt.pods, tt.terminating, now)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(counts{})); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", tt.name, diff)
		}
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
		{"creating failed", nil, applyResult{err: denied, creating: true}, list{condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"deleting failed", nil, applyResult{err: denied}, list{condition(corev1.ConditionTrue, "FailedDelete", "denied", ago(0))}},
		{"nothing failed any more", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}, applyResult{}, nil},
		{"nothing was tried: nobody knows", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}, applyResult{deferred: true},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}},
		{"failed again for another reason", list{condition(corev1.ConditionTrue, "FailedDelete", "gone", earlier)}, applyResult{err: denied, creating: true},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier)}},
		{"a false one turns true now", list{condition(corev1.ConditionFalse, "", "", earlier)}, applyResult{err: denied, creating: true},
			list{condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"conditions of others stay when it is set", list{foreign}, applyResult{err: denied, creating: true},
			list{foreign, condition(corev1.ConditionTrue, "FailedCreate", "denied", ago(0))}},
		{"and when it is removed", list{condition(corev1.ConditionTrue, "FailedCreate", "denied", earlier), foreign}, applyResult{}, list{foreign}},
		{"and otherwise", list{foreign}, applyResult{}, list{foreign}},
	} {
		before := append(list(nil), tt.old...)
		got := newConditions(tt.old, tt.a, now)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: conditions (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(before, append(list(nil), tt.old...)); diff != "" {
			t.Errorf("%s: the old conditions were changed:\n%s", tt.name, diff)
		}
	}
}
