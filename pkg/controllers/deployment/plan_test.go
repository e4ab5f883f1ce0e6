package deployment

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRaisesGetTheRoomThatIsThere(t *testing.T) {
	for _, tt := range []struct {
		name               string
		replicas           int32
		surge, unavailable int
		facts              facts
		sets               []replicaSet
		refused            []string
		want               []string
	}{
		{"all were carried out", 10, 2, 2, facts{}, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, nil, []string{"new 0→4"}},
		{"only the surge is free", 10, 2, 2, facts{}, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old"}, []string{"new 0→2"}},
		{"not even that", 10, 0, 2, facts{}, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old"}, []string{}},
		{"one of two was carried out", 10, 1, 4, facts{}, []replicaSet{newNext("new", 0), newOld("old", 7, 1), newOld("older", 3, 2)}, []string{"older"}, []string{"new 0→2"}},
		{"the surge is free for all of it", 10, 5, 0, facts{}, []replicaSet{newNext("new", 5), newOld("old", 5, 1)}, []string{"old"}, []string{"new 5→10"}},
		{"there are too many already", 4, 0, 1, facts{}, []replicaSet{newNext("new", 0), newOld("old", 6, 1), newOld("older", 2, 2)}, []string{"older"}, []string{}},
		{"pods of a create that was not answered keep their room", 10, 4, 2, facts{pendingOld: 3}, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old"}, []string{"new 0→1"}},
		{"a ReplicaSet of this pass has its room", 10, 2, 2, facts{}, []replicaSet{newOld("old", 10, 1)}, []string{"old"}, []string{}},
		{"and gets what was given up", 10, 2, 2, facts{}, []replicaSet{newOld("old", 10, 1)}, nil, []string{"web 2→4"}},
		{"shares: the largest gives what the others get", 8, 0, 1, facts{}, []replicaSet{newNext("new", 5, sizedFor(1, 1)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"old"}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := rollout(newDeployment(tt.replicas, within(tt.surge, tt.unavailable)), tt.sets, tt.facts, now)
			if p.create != nil {
				p.create.Name = "web"
			}
			done := slices.DeleteFunc(slices.Clone(p.changes), func(c change) bool { return c.isRaise() || slices.Contains(tt.refused, c.rs.Name) })
			if diff := cmp.Diff(tt.want, sizesOf(p.raisesAfter(done))); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithoutRoomTheRestOfARaiseIsWritten: annotations and minReadySeconds are written without the size
// annotations.
func TestWithoutRoomTheRestOfARaiseIsWritten(t *testing.T) {
	d := newDeployment(10, within(0, 2), annotated("note", "new"))
	d.Spec.MinReadySeconds = 5
	next := newNext("back", 0, revision("1"))
	p := rollout(d, []replicaSet{next, newOld("old", 10, 1, revision("2"))}, facts{}, now)
	want := []change{{rs: next.rs, minReadySeconds: new(int32(5)), annotations: map[string]string{"note": "new", revisionAnnotation: "3", revisionHistoryAnnotation: "1"}}}
	if diff := cmp.Diff(want, p.raisesAfter(nil), cmp.AllowUnexported(change{})); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestARefusedReductionDoesNotLetSizesGrow(t *testing.T) {
	for _, tt := range []struct {
		surge, unavailable, old, next int
		want                          int // size of the new one in the end
	}{{2, 2, 10, 0, 2}, {0, 2, 10, 0, 0}, {5, 0, 5, 5, 10}, {10, 0, 10, 0, 10}} {
		d := newDeployment(10, within(tt.surge, tt.unavailable))
		sets := []replicaSet{newOld("old", int32(tt.old), 1), newNext("new", int32(tt.next))}
		for range 8 {
			p := rollout(d, sets, facts{}, now)
			p.changes = p.raisesAfter(nil)
			sets = apply(p.plan, sets)
			for i := range sets {
				sets[i] = newOld(sets[i].rs.Name, int32(sets[i].size()), 1-i, func(s *replicaSet) { s.current = sets[i].current })
			}
		}
		if sum := totalSize(sets); sum > 10+tt.surge || sets[1].size() != tt.want {
			t.Errorf("%+v: sizes add up to %d, the new one has %d, want at most %d, and %d", tt, sum, sets[1].size(), 10+tt.surge, tt.want)
		}
	}
}
