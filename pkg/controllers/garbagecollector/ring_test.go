package garbagecollector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// waitingGraph holds owners that wait for their dependents: blockers lists the dependents of each owner.
func waitingGraph(t *testing.T, blockers map[int][]int) (*world, *feed) {
	t.Helper()
	w := newWorld(t)
	f := w.feed(configMaps)
	objects := map[int]*thing{}
	object := func(n int) *thing {
		if objects[n] == nil {
			objects[n] = newThing("a", fmt.Sprint(n), uid(n)).finalizedBy("foregroundDeletion").deleted()
		}
		return objects[n]
	}
	for owner, dependents := range blockers {
		object(owner)
		for _, d := range dependents {
			o := object(d)
			o.OwnerReferences = append(o.OwnerReferences, blockingRef("v1", "ConfigMap", fmt.Sprint(owner), uid(owner)))
		}
	}
	for _, o := range objects {
		w.do(func() error { return f.Add(o) })
	}
	return w, f
}

func TestRingBlockers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		blockers map[int][]int
		of       int
		want     []types.UID
	}{
		{"a chain", map[int][]int{1: {2}, 2: {3}}, 1, nil},
		{"a reference to itself", map[int][]int{1: {1}}, 1, nil},
		{"the lowest of two", map[int][]int{1: {2}, 2: {1}}, 1, []types.UID{uid(2)}},
		{"the other of two", map[int][]int{1: {2}, 2: {1}}, 2, nil},
		{"the lowest of three", map[int][]int{3: {2}, 2: {1}, 1: {3}}, 1, []types.UID{uid(3)}},
		{"above a ring", map[int][]int{1: {2}, 2: {3}, 3: {2}}, 1, nil},
		{"a ring below the lowest", map[int][]int{1: {2}, 2: {3}, 3: {2}}, 2, []types.UID{uid(3)}},
		{"two rings through the lowest", map[int][]int{1: {2, 3}, 2: {1}, 3: {1}}, 1, []types.UID{uid(2), uid(3)}},
		{"a blocker in another ring", map[int][]int{1: {2, 3}, 2: {1}, 3: {4}, 4: {3}}, 1, []types.UID{uid(2)}},
		{"a member that refers to itself", map[int][]int{1: {1, 2}, 2: {1}}, 1, []types.UID{uid(2)}},
		{"a lower ring first", map[int][]int{2: {3}, 3: {2, 1}, 1: {4}, 4: {1}}, 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []types.UID
			w, _ := waitingGraph(t, tt.blockers)
			for _, o := range w.graph.cycleBlockers(keyOf(uid(tt.of))) {
				got = append(got, o.uid)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("blockers are %v, want %v", got, tt.want)
			}
		})
	}
}

// A dependent that does not wait goes, or is blocked, for another reason.
func TestRingWaitsForOtherBlockers(t *testing.T) {
	w, f := waitingGraph(t, map[int][]int{1: {2}, 2: {1}})
	w.do(func() error {
		return f.Add(newThing("a", "3", uid(3)).owned(blockingRef("v1", "ConfigMap", "2", uid(2))))
	})
	if got := w.graph.cycleBlockers(keyOf(uid(1))); got != nil {
		t.Errorf("blockers are %v, want none while a dependent has to be deleted", got)
	}
	w.do(func() error { return f.Add(newThing("a", "3", uid(3)).owned(ref("v1", "ConfigMap", "2", uid(2)))) })
	if got := w.graph.cycleBlockers(keyOf(uid(1))); len(got) != 1 {
		t.Errorf("blockers are %v, want one", got)
	}
}

// Every set of owners that wait for each other comes to an end.
func TestEveryRingIsBroken(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 13))
		n := 2 + r.IntN(8)
		left := map[int][]int{}
		for i := range n {
			left[i] = nil
		}
		for range r.IntN(3 * n) {
			from := r.IntN(n)
			left[from] = append(left[from], r.IntN(n))
		}
		for len(left) > 0 {
			progress := false
			for owner, dependents := range left {
				dependents = slices.DeleteFunc(dependents, func(d int) bool { _, ok := left[d]; return !ok || d == owner })
				if left[owner] = dependents; len(dependents) == 0 {
					delete(left, owner)
					progress = true
				}
			}
			if progress {
				continue
			}
			w, _ := waitingGraph(t, left)
			for owner := range left {
				for _, blocker := range w.graph.cycleBlockers(keyOf(uid(owner))) {
					left[owner] = slices.DeleteFunc(left[owner], func(d int) bool { return uid(d) == blocker.uid })
					progress = true
				}
			}
			if !progress {
				t.Fatalf("seed %d: %v wait for each other", seed, left)
			}
		}
	}
}
