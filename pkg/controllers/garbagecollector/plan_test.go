package garbagecollector

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWeigh(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rulings []ruling
		want    weighed
	}{
		{"no owners", nil, weighed{}},
		{"one has to be asked for", []ruling{{verdict: present, witness: byFeed}, {ask: true}}, weighed{owners: []verdict{present, unknown}, ask: []int{1}}},
		{"the soonest counts", []ruling{{after: 2 * time.Second, held: "unconfirmed"}, {after: time.Second, held: "refused"}, {held: "scope"}},
			weighed{owners: []verdict{unknown, unknown, unknown}, after: time.Second, held: "unconfirmed"}},
		{"one is polled", []ruling{{verdict: present, after: time.Minute}, {verdict: absent}}, weighed{owners: []verdict{present, absent}, after: time.Minute}},
		{"only another reference can help", []ruling{{held: "scope"}}, weighed{owners: []verdict{unknown}, held: "scope"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := weigh(tt.rulings); !gocmp.Equal(got, tt.want, gocmp.AllowUnexported(weighed{})) {
				t.Errorf("rulings amount to %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	const (
		background = metav1.DeletePropagationBackground
		inFront    = metav1.DeletePropagationForeground
		letting    = metav1.DeletePropagationOrphan
	)
	of := func(v ...verdict) []verdict { return v }
	for _, tt := range []struct {
		name   string
		marks  marks
		owners []verdict
		owns   bool
		want   action
	}{
		{"an object without owners", 0, nil, true, action{do: keep}},
		{"with one that lives", 0, of(present), true, action{do: keep}},
		{"with two that live", 0, of(present, present), false, action{do: keep}},
		{"one is gone", 0, of(absent), false, action{do: remove, policy: background}},
		{"one is gone, and it has dependents", 0, of(absent), true, action{do: remove, policy: background}},
		{"one waits, and it has none", 0, of(waiting), false, action{do: remove, policy: background}},
		{"one waits, and it has dependents", 0, of(waiting), true, action{do: remove, policy: inFront}},
		{"one waits, one is gone, and it has dependents", 0, of(absent, waiting), true, action{do: remove, policy: inFront}},
		{"it is to be orphaned by default", orphaning, of(absent), true, action{do: remove, policy: letting}},
		{"it is to wait by default", foreground, of(absent), false, action{do: remove, policy: inFront}},
		{"it is to be orphaned by default, but its owner waits for all below", orphaning, of(waiting), true, action{do: remove, policy: inFront}},
		{"it is to be orphaned by default, and nothing is below", orphaning, of(waiting), false, action{do: remove, policy: letting}},
		{"others hold it", held, of(absent), false, action{do: remove, policy: background}},
		{"one lives, one is gone", 0, of(present, absent), false, action{do: release, refs: []int{1}}},
		{"one lives, one waits", 0, of(waiting, present), true, action{do: release, refs: []int{0}}},
		{"one lives, the others do not", 0, of(absent, present, waiting), true, action{do: release, refs: []int{0, 2}}},
		{"one is unknown", 0, of(unknown), false, action{do: await}},
		{"one is gone, one unknown", 0, of(absent, unknown), false, action{do: await}},
		{"one waits, one unknown", 0, of(waiting, unknown), true, action{do: await}},
		{"one lives, one unknown", 0, of(present, unknown), true, action{do: keep}},
		{"one lives, one unknown, one waits", 0, of(present, unknown, waiting), true, action{do: release, refs: []int{2}}},
		{"it is being deleted", terminating, of(absent), true, action{do: keep}},
		{"and others hold it", terminating | held, of(absent), true, action{do: keep}},
		{"it waits for its dependents", terminating | foreground, of(absent), true, action{do: let}},
		{"it makes orphans", terminating | orphaning, of(present), false, action{do: let}},
		{"and has no owners", terminating | orphaning, nil, false, action{do: let}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(sight{object: object{marks: seen | tt.marks}, owners: tt.owners, owns: tt.owns})
			if !gocmp.Equal(got, tt.want, gocmp.AllowUnexported(action{})) {
				t.Errorf("action is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What must hold for every combination of up to four owners.
func TestNothingIsRemovedThatAnOwnerKeeps(t *testing.T) {
	for n := range 4 * 4 * 4 * 4 {
		owners := []verdict{verdict(n % 4), verdict(n / 4 % 4), verdict(n / 16 % 4), verdict(n / 64)}
		for _, owners := range [][]verdict{owners, owners[:3], owners[:2], owners[:1], nil} {
			for m := range marks(1 << 5) {
				for _, owns := range []bool{false, true} {
					checkAction(t, sight{object: object{marks: seen | m&facts}, owners: owners, owns: owns})
				}
			}
		}
	}
}

func checkAction(t *testing.T, s sight) {
	t.Helper()
	got := decide(s)
	switch got.do {
	case remove:
		if len(s.owners) == 0 || slices.Contains(s.owners, present) || slices.Contains(s.owners, unknown) || s.object.marks.has(terminating) {
			t.Fatalf("%+v is removed", s)
		}
	case release:
		if !slices.Contains(s.owners, present) || len(got.refs) == 0 {
			t.Fatalf("%+v is released: %v", s, got.refs)
		}
		for _, n := range got.refs {
			if v := s.owners[n]; v == present || v == unknown {
				t.Fatalf("%+v is released from owner %d", s, n)
			}
		}
	}
	if (got.do == remove) != (got.policy != "") || (got.do == release) != (got.refs != nil) {
		t.Fatalf("%+v: action %+v is not whole", s, got)
	}
}

// The order of references does not matter but for their positions.
func TestTheOrderOfOwnersDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 13))
	for range 2000 {
		s := sight{object: object{marks: seen | marks(r.IntN(32))&facts}, owns: r.IntN(2) == 0}
		for range r.IntN(5) {
			s.owners = append(s.owners, verdict(r.IntN(4)))
		}
		other := s
		other.owners = slices.Clone(s.owners)
		r.Shuffle(len(other.owners), func(i, j int) { other.owners[i], other.owners[j] = other.owners[j], other.owners[i] })
		a, b := decide(s), decide(other)
		if a.do != b.do || a.policy != b.policy || len(a.refs) != len(b.refs) {
			t.Fatalf("%+v for %v, and %+v for %v", a, s.owners, b, other.owners)
		}
	}
}
