package garbagecollector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestRingOf(t *testing.T) {
	for _, tt := range []struct {
		name    string
		b       blockers
		of      types.UID
		want    ring
		isOneOf bool
	}{
		{"nobody waits", blockers{}, "a", ring{}, false},
		{"a chain", blockers{"a": {"b"}, "b": {"c"}}, "a", ring{}, false},
		{"it refers to itself", blockers{"a": {"a"}}, "a", ring{}, false},
		{"two", blockers{"a": {"b"}, "b": {"a"}}, "a", ring{"a", []types.UID{"b"}}, true},
		{"two, seen from the other", blockers{"a": {"b"}, "b": {"a"}}, "b", ring{"a", []types.UID{"b"}}, true},
		{"three", blockers{"c": {"b"}, "b": {"a"}, "a": {"c"}}, "b", ring{"a", []types.UID{"c"}}, true},
		{"above a ring", blockers{"x": {"a"}, "a": {"b"}, "b": {"a"}}, "x", ring{}, false},
		{"below a ring", blockers{"a": {"b", "x"}, "b": {"a"}, "x": {}}, "x", ring{}, false},
		{"with others below the victim", blockers{"a": {"b", "x"}, "b": {"a"}, "x": {"y"}}, "a", ring{"a", []types.UID{"b"}}, true},
		{"two rings through one", blockers{"m": {"a", "z"}, "a": {"m"}, "z": {"m"}}, "z", ring{"a", []types.UID{"m"}}, true},
		{"two ways to the victim", blockers{"a": {"c", "b", "c"}, "b": {"a"}, "c": {"a"}}, "c", ring{"a", []types.UID{"b", "c"}}, true},
		{"one ring above another", blockers{"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, "d", ring{"c", []types.UID{"d"}}, true},
		{"the victim refers to itself, too", blockers{"a": {"a", "b"}, "b": {"a"}}, "b", ring{"a", []types.UID{"b"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.b.ringOf(tt.of)
			if ok != tt.isOneOf || !gocmp.Equal(got, tt.want, gocmp.AllowUnexported(ring{})) {
				t.Errorf("ring is %+v (%v), want %+v (%v)", got, ok, tt.want, tt.isOneOf)
			}
		})
	}
}

// Owners that all wait come to an end if those go that nobody holds, and every ring is broken where it says. The last to be left are not
// a matter of chance.
func TestEveryRingIsBroken(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 13))
		b := blockers{}
		n := 2 + r.IntN(8)
		for i := range n {
			b[types.UID(fmt.Sprint(i))] = nil
		}
		for range r.IntN(3 * n) {
			from, to := types.UID(fmt.Sprint(r.IntN(n))), types.UID(fmt.Sprint(r.IntN(n)))
			b[from] = append(b[from], to)
		}
		released := ""
		for len(b) > 0 {
			before := len(b)
			maps.DeleteFunc(b, func(o types.UID, held []types.UID) bool {
				return !slices.ContainsFunc(held, func(d types.UID) bool { _, there := b[d]; return there && d != o })
			})
			if len(b) < before {
				continue
			}
			progress := false
			for _, o := range slices.Sorted(maps.Keys(b)) {
				there := blockers{}
				for o, held := range b {
					there[o] = slices.DeleteFunc(slices.Clone(held), func(d types.UID) bool { _, ok := b[d]; return !ok })
				}
				ring, ok := there.ringOf(o)
				if !ok || ring.victim != o {
					continue
				}
				for member := range there.reachable(o) { // whoever is asked says the same
					if other, ok := there.ringOf(member); ok && there.reachable(member)[o] && other.victim != o {
						t.Fatalf("seed %d: %v is in the ring of %s, and has that of %s", seed, member, o, other.victim)
					}
				}
				b[o] = slices.DeleteFunc(slices.Clone(b[o]), func(d types.UID) bool { return slices.Contains(ring.release, d) })
				released += fmt.Sprint(ring)
				progress = true
			}
			if !progress {
				t.Fatalf("seed %d: %v wait for each other, and nobody breaks it", seed, b)
			}
		}
	}
}

func TestWaitingBelow(t *testing.T) {
	w := newWorld(t)
	f := w.feed(configMaps)
	waits := func(n int, owners ...int) *thing {
		o := newThing("a", fmt.Sprint(n), uid(n)).finalizedBy("foregroundDeletion").deleted()
		for _, owner := range owners {
			o.OwnerReferences = append(o.OwnerReferences, blockingRef("v1", "ConfigMap", fmt.Sprint(owner), uid(owner)))
		}
		return o
	}
	for _, o := range []*thing{
		waits(1, 3), waits(2, 1, 2), waits(3, 2), // a ring of three, of which one refers to itself
		newThing("a", "4", uid(4)).owned(blockingRef("v1", "ConfigMap", "1", uid(1))), // does not wait
		waits(5).owned(ref("v1", "ConfigMap", "1", uid(1))),                           // does not block
		newThing("b", "6", uid(6)).owned(blockingRef("v1", "ConfigMap", "1", uid(1))).finalizedBy("foregroundDeletion").deleted(),
	} {
		w.do(func() error { return f.Add(o) })
	}
	want := blockers{uid(1): {uid(2)}, uid(2): {uid(3)}, uid(3): {uid(1)}}
	if got := w.graph.waitingBelow(keyOf(uid(2))); !gocmp.Equal(got, want) {
		t.Errorf("who waits is %v, want %v", got, want)
	}
	if got := w.graph.waitingBelow(keyOf(uid(4))); len(got) != 0 {
		t.Errorf("below an object that does not wait there is %v", got)
	}
}
