package garbagecollector

import (
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	const (
		background = metav1.DeletePropagationBackground
		inFront    = metav1.DeletePropagationForeground
		letting    = metav1.DeletePropagationOrphan
	)
	of := func(v ...ownerState) []ownerState { return v }
	for _, tt := range []struct {
		name   string
		marks  marks
		owners []ownerState
		owns   bool
		want   decision
	}{
		{"an object without owners", 0, nil, true, decision{action: keep}},
		{"with one that lives", 0, of(solid), true, decision{action: keep}},
		{"with two that live", 0, of(solid, solid), false, decision{action: keep}},
		{"one is gone", 0, of(absent), false, decision{action: remove, policy: background}},
		{"one is gone, and it has dependents", 0, of(absent), true, decision{action: remove, policy: background}},
		{"one waits, and it has none", 0, of(waitingForDependents), false, decision{action: remove, policy: background}},
		{"one waits, and it has dependents", 0, of(waitingForDependents), true, decision{action: remove, policy: inFront}},
		{"one waits, one is gone, and it has dependents", 0, of(absent, waitingForDependents), true, decision{action: remove, policy: inFront}},
		{"it is to be orphaned by default", orphaning, of(absent), true, decision{action: remove, policy: letting}},
		{"it is to wait by default", foreground, of(absent), false, decision{action: remove, policy: inFront}},
		{"it is to be orphaned by default, but its owner waits for all below", orphaning, of(waitingForDependents), true, decision{action: remove, policy: inFront}},
		{"it is to be orphaned by default, and nothing is below", orphaning, of(waitingForDependents), false, decision{action: remove, policy: letting}},
		{"others hold it", otherFinalizer, of(absent), false, decision{action: remove, policy: background}},
		{"one lives, one is gone", 0, of(solid, absent), false, decision{action: release, refs: []int{1}}},
		{"one lives, one waits", 0, of(waitingForDependents, solid), true, decision{action: release, refs: []int{0}}},
		{"one lives, the others do not", 0, of(absent, solid, waitingForDependents), true, decision{action: release, refs: []int{0, 2}}},
		{"one is unknown", 0, of(unknown), false, decision{action: await}},
		{"one is gone, one unknown", 0, of(absent, unknown), false, decision{action: await}},
		{"one waits, one unknown", 0, of(waitingForDependents, unknown), true, decision{action: await}},
		{"one lives, one unknown", 0, of(solid, unknown), true, decision{action: keep}},
		{"one lives, one unknown, one waits", 0, of(solid, unknown, waitingForDependents), true, decision{action: release, refs: []int{2}}},
		{"it is being deleted", terminating, of(absent), true, decision{action: keep}},
		{"and others hold it", terminating | otherFinalizer, of(absent), true, decision{action: keep}},
		{"it waits for its dependents", terminating | foreground, of(absent), true, decision{action: finish}},
		{"it makes orphans", terminating | orphaning, of(solid), false, decision{action: finish}},
		{"and has no owners", terminating | orphaning, nil, false, decision{action: finish}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decide(observed|tt.marks, tt.owners, tt.owns)
			if !gocmp.Equal(got, tt.want, gocmp.AllowUnexported(decision{})) {
				t.Errorf("action is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The invariants hold for every combination of up to four owners.
func TestSolidOwnersKeepObjects(t *testing.T) {
	for n := range 4 * 4 * 4 * 4 {
		owners := []ownerState{ownerState(n % 4), ownerState(n / 4 % 4), ownerState(n / 16 % 4), ownerState(n / 64)}
		for _, owners := range [][]ownerState{owners, owners[:3], owners[:2], owners[:1], nil} {
			for m := range marks(1 << 5) {
				for _, owns := range []bool{false, true} {
					checkDecision(t, observed|m&facts, owners, owns)
				}
			}
		}
	}
}

func checkDecision(t *testing.T, m marks, owners []ownerState, owns bool) {
	t.Helper()
	got := decide(m, owners, owns)
	switch got.action {
	case remove:
		if len(owners) == 0 || slices.Contains(owners, solid) || slices.Contains(owners, unknown) || m.has(terminating) {
			t.Fatalf("%v with owners %v is removed", m, owners)
		}
	case release:
		if !slices.Contains(owners, solid) || len(got.refs) == 0 {
			t.Fatalf("%v with owners %v is released: %v", m, owners, got.refs)
		}
		for _, n := range got.refs {
			if owners[n] == solid || owners[n] == unknown {
				t.Fatalf("%v with owners %v is released from owner %d", m, owners, n)
			}
		}
	}
	if (got.action == remove) != (got.policy != "") || (got.action == release) != (got.refs != nil) {
		t.Fatalf("%v with owners %v: decision %+v is incomplete", m, owners, got)
	}
}

// The order of references changes only their positions.
func TestDecideIgnoresOrderOfOwners(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 13))
	for range 2000 {
		m, owns := observed|marks(r.IntN(32))&facts, r.IntN(2) == 0
		var owners []ownerState
		for range r.IntN(5) {
			owners = append(owners, ownerState(r.IntN(4)))
		}
		shuffled := slices.Clone(owners)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		a, b := decide(m, owners, owns), decide(m, shuffled, owns)
		if a.action != b.action || a.policy != b.policy || len(a.refs) != len(b.refs) {
			t.Fatalf("%+v for %v, and %+v for %v", a, owners, b, shuffled)
		}
	}
}
