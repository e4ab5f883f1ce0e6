package replicaset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
		{"a finished pod being deleted is not terminating", newSet(1), []*caches.Pod{newPod("a", deleting, phase(corev1.PodSucceeded))}, nil, sorted{}},
		{"phases empty and Unknown are active", newSet(1),
			[]*caches.Pod{newPod("a", phase("")), newPod("b", phase(corev1.PodUnknown))}, nil, sorted{Mine: []string{"a", "b"}}},
		{"both at once", newSet(2), []*caches.Pod{newPod("a"), newPod("b", other), newPod("c", orphaned)}, nil,
			sorted{Mine: []string{"a"}, Release: []string{"b"}, Adopt: []string{"c"}}},
		{"a deleted pod that the cache still shows is gone, or terminating if it takes its time", newSet(1),
			[]*caches.Pod{newPod("a", onNode("n")), newPod("b", onNode("n"))}, map[types.UID]bool{"a": false, "b": true}, sorted{Terminating: 1}},
	} {
		c := claimPods(tt.set, mustSelect(tt.set), tt.pods, tt.gone)
		got := sorted{podNames(c.owned), podNames(c.adopt), podNames(c.release), podNames(c.failed), c.terminating}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: claim (-want +got):\n%s", tt.name, diff)
		}
	}
}

func podsNamed(n int) []*caches.Pod {
	pods := make([]*caches.Pod, n)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("pod-%d", i))
	}
	return pods
}

// TestPlanProperties: a plan stays within the burst, deletes only given pods, each pod once, and reaches
// the wanted number if the burst allows.
func TestPlanProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		pods := podsNamed(random.IntN(20))
		unanswered := map[types.UID]unconfirmedDelete{}
		for _, pod := range pods {
			if random.IntN(4) == 0 {
				unanswered[pod.UID] = unconfirmedDelete{}
			}
		}
		want, burst := random.IntN(20), 1+random.IntN(10)
		p := planReplicas(want, pods, unanswered, burst)
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
			t.Fatalf("%d new deletes while %d unanswered ones may be carried out", p.surplus, p.unconfirmedNeeded())
		case left+p.create > want && len(leaving) < burst:
			t.Fatalf("want %d, %d pods would be left and %d created within a burst of %d", want, left, p.create, burst)
		case left+p.create < want && p.create < burst:
			t.Fatalf("want %d, %d pods would be left and only %d created", want, left, p.create)
		}
	}
}

func TestSlowStart(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name    string
		first   int
		n       int
		allowed int // calls that succeed
		batches []int
		err     error
	}{
		{"nothing to do", 1, 0, 10, nil, nil},
		{"everything fails: one call", 1, 10, 0, []int{1}, boom},
		{"everything succeeds", 1, 10, 10, []int{1, 2, 4, 3}, nil},
		{"half succeeds: the batch is finished, the rest is not begun", 1, 10, 5, []int{1, 2, 4}, boom},
		{"a burst takes nine batches", 1, 500, 500, []int{1, 2, 4, 8, 16, 32, 64, 128, 245}, nil},
		{"ten of a hundred succeed: at most fifteen calls", 1, 100, 10, []int{1, 2, 4, 8}, boom},
		{"it goes on where it was cut", 64, 200, 200, []int{64, 128, 8}, nil},
		{"and with what is left", 64, 10, 10, []int{10}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var batches []int
			calls := 0
			err := slowStart(tt.first, tt.n, func(size int) error {
				batches = append(batches, size)
				calls += size
				if calls > tt.allowed {
					return boom
				}
				return nil
			})
			if !errors.Is(err, tt.err) || !slices.Equal(batches, tt.batches) {
				t.Errorf("batches %v with error %v, want %v with %v", batches, err, tt.batches, tt.err)
			}
		})
	}
}
