package deployment

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
)

func TestRaisesStayWithinTheCapacity(t *testing.T) {
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
		p := rollout(newDeployment(tt.replicas, within(tt.surge, tt.unavailable)), tt.sets, tt.facts, now)
		if p.create != nil {
			p.create.Name = "web"
		}
		done := slices.DeleteFunc(slices.Clone(p.changes), func(c change) bool { return c.isRaise() || slices.Contains(tt.refused, c.rs.Name) })
		if diff := cmp.Diff(tt.want, sizesOf(p.raisesAfter(done))); diff != "" {
			t.Errorf("%s: sizes (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestRaiseWithoutCapacityWritesAnnotations and minReadySeconds without a size, also while the Deployment is paused.
func TestRaiseWithoutCapacityWritesAnnotations(t *testing.T) {
	for _, tt := range []struct {
		d         *appsv1.Deployment
		next, old replicaSet
	}{
		{newDeployment(10, within(0, 2)), newNext("back", 1, sizedFor(10, 10)), newOld("old", 9, 1, sizedFor(10, 10))},
		{newDeployment(8, paused), newNext("back", 5, sizedFor(1, 1)), newOld("old", 5, 1, sizedFor(10, 10))},
	} {
		annotated("note", "new")(tt.d)
		tt.d.Spec.MinReadySeconds = 5
		p := rollout(tt.d, []replicaSet{tt.next, tt.old}, facts{}, now)
		got := p.raisesAfter(nil)
		want := []change{{rs: tt.next.rs, from: tt.next.size(), to: tt.next.size(), minReadySeconds: new(int32(5)),
			annotations: map[string]string{"note": "new", revisionAnnotation: "1"}}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(change{}), cmpopts.IgnoreFields(change{}, "reason")); diff != "" || !p.changes[1].isRaise() {
			t.Errorf("paused %t: changes (-want +got):\n%s\nof the plan %v", tt.d.Spec.Paused, diff, sizesOf(p.changes))
		}
	}
}
