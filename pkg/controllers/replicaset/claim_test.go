package replicaset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
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
		{"an orphan is adopted if it is selected", newSet(1),
			[]*caches.Pod{newPod("a", orphaned), newPod("b", orphaned, other)}, nil, sorted{Adopt: []string{"a"}}},
		{"a set being deleted adopts nothing", newSet(1, setDeleting),
			[]*caches.Pod{newPod("a", orphaned), newPod("b", orphaned)}, nil, sorted{}},
		{"a set being deleted keeps what it has", newSet(1, setDeleting),
			[]*caches.Pod{newPod("a"), newPod("b", orphaned)}, nil, sorted{Mine: []string{"a"}}},
		{"a set being deleted releases nothing", newSet(1, setDeleting), []*caches.Pod{newPod("a", other)}, nil, sorted{}},
		{"a pod of another controller is left alone", newSet(1),
			[]*caches.Pod{newPod("a"), newPod("b", ownedBy("another"))}, nil, sorted{Mine: []string{"a"}}},
		{"a pod that is no longer selected is released", newSet(1),
			[]*caches.Pod{newPod("a"), newPod("b", other)}, nil, sorted{Mine: []string{"a"}, Release: []string{"b"}}},
		{"pods being deleted are neither adopted nor released", newSet(1),
			[]*caches.Pod{newPod("a", deleting), newPod("b", orphaned, deleting), newPod("c", other, deleting)}, nil, sorted{Terminating: 1}},
		{"finished pods are neither counted, adopted nor released", newSet(1),
			[]*caches.Pod{newPod("a", phase(corev1.PodSucceeded)), newPod("b", phase(corev1.PodFailed)), newPod("c", phase(corev1.PodFailed), orphaned),
				newPod("d", phase(corev1.PodSucceeded), other)}, nil, sorted{Failed: []string{"b"}}},
		{"a kubelet reports a deleted pod as failed before it goes", newSet(1),
			[]*caches.Pod{newPod("a", deleting, phase(corev1.PodFailed)), newPod("b", phase(corev1.PodFailed)), newPod("c", phase(corev1.PodFailed))},
			map[types.UID]bool{"b": false}, sorted{Failed: []string{"c"}}},
		{"a reference with our UID and another name or kind does not make a pod ours", newSet(1), []*caches.Pod{
			newPod("a", func(p *caches.Pod) { p.OwnerReferences[0].Name = "other" }), newPod("b", func(p *caches.Pod) { p.OwnerReferences[0].Kind = "Job" }),
			newPod("c", phase(corev1.PodFailed), func(p *caches.Pod) { p.OwnerReferences[0].Kind = "Job" })}, nil, sorted{}},
		{"a finished pod being deleted is not terminating", newSet(1), []*caches.Pod{newPod("a", deleting, phase(corev1.PodSucceeded))}, nil, sorted{}},
		{"phases empty and Unknown are active", newSet(1),
			[]*caches.Pod{newPod("a", phase("")), newPod("b", phase(corev1.PodUnknown))}, nil, sorted{Mine: []string{"a", "b"}}},
		{"both at once", newSet(2), []*caches.Pod{newPod("a"), newPod("b", other), newPod("c", orphaned)}, nil,
			sorted{Mine: []string{"a"}, Release: []string{"b"}, Adopt: []string{"c"}}},
		{"a pod of another namespace is nothing to us", newSet(1),
			[]*caches.Pod{newPod("a", orphaned), newPod("b", orphaned, func(p *caches.Pod) { p.Namespace = "elsewhere" })}, nil, sorted{Adopt: []string{"a"}}},
		{"an owner that is no controller does not matter", newSet(1), []*caches.Pod{newPod("a", func(p *caches.Pod) {
			p.OwnerReferences[0].Controller = new(false)
		})}, nil, sorted{Adopt: []string{"a"}}},
		{"a deleted pod that the cache still shows is gone, or terminating if it takes its time", newSet(1),
			[]*caches.Pod{newPod("a", onNode("n")), newPod("b", onNode("n"))}, map[types.UID]bool{"a": false, "b": true}, sorted{Terminating: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := claim(tt.set, mustSelect(tt.set), tt.pods, tt.gone)
			got := sorted{uidsOrNil(c.mine), uidsOrNil(c.adopt), uidsOrNil(c.release), uidsOrNil(c.failed), c.terminating}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("claim (-want +got):\n%s", diff)
			}
		})
	}
}

func uidsOrNil(pods []*caches.Pod) []string {
	if len(pods) == 0 {
		return nil
	}
	return uids(pods)
}
