package deployment

import (
	"slices"
	"testing"
	"time"

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

// TestRaiseWithoutCapacityIsDescribedNext: while the rejected reduction backs off, annotations and minReadySeconds are
// written without a size.
func TestRaiseWithoutCapacityIsDescribedNext(t *testing.T) {
	d := newDeployment(10, within(0, 2), annotated("note", "new"))
	d.Spec.MinReadySeconds = 5
	next := newNext("back", 0, revision("1"))
	if raises := rollout(d, []replicaSet{next, newOld("old", 10, 1, revision("2"))}, facts{}, now).raisesAfter(nil); raises != nil {
		t.Errorf("raises %v without capacity", sizesOf(raises))
	}
	rejected := newOld("old", 10, 1, revision("2"), func(s *replicaSet) { s.backoff = time.Second })
	got := rollout(d, []replicaSet{next, rejected}, facts{}, now).changes
	want := []change{{rs: next.rs, minReadySeconds: new(int32(5)), annotations: map[string]string{"note": "new", revisionAnnotation: "3", revisionHistoryAnnotation: "1"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(change{})); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
