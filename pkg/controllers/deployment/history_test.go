package deployment

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

func TestHistory(t *testing.T) {
	old := func(name, rev string, minutes int, edits ...func(*replicaSet)) replicaSet {
		return newOld(name, 0, minutes, append(edits, revision(rev))...)
	}
	with := func(name, rev string, minutes int) replicaSet { return newOld(name, 1, minutes, revision(rev)) }
	leaving := withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas = 1 })
	for _, tt := range []struct {
		name  string
		limit *int32
		sets  []replicaSet
		want  []string
	}{
		{"no more than are kept", new(int32(3)), []replicaSet{old("a", "1", 3), old("b", "2", 2), old("c", "3", 1)}, nil},
		{"the lowest revision goes", new(int32(2)), []replicaSet{old("a", "1", 3), old("b", "2", 2), old("c", "3", 1)}, []string{"a"}},
		{"though it is the youngest", new(int32(2)), []replicaSet{old("a", "3", 3), old("b", "2", 2), old("c", "1", 1)}, []string{"c"}},
		{"and lower by number, not by text", new(int32(1)), []replicaSet{old("a", "10", 3), old("b", "9", 2)}, []string{"b"}},
		{"none is the lowest of all", new(int32(1)), []replicaSet{old("a", "1", 3), newOld("b", 0, 2)}, []string{"b"}},
		{"what cannot be read is none", new(int32(1)), []replicaSet{old("a", "1", 3), old("b", "x", 2)}, []string{"b"}},
		{"of equals the older", new(int32(1)), []replicaSet{old("a", "1", 2), old("b", "1", 3)}, []string{"b"}},
		{"the two lowest", new(int32(2)), []replicaSet{old("a", "4", 4), old("b", "3", 3), old("c", "2", 2), old("d", "1", 1)}, []string{"d", "c"}},
		{"none is kept", new(int32(0)), []replicaSet{old("a", "1", 3), old("b", "2", 2)}, []string{"a", "b"}},
		{"a negative limit keeps none", new(int32(-1)), []replicaSet{old("a", "1", 3)}, []string{"a"}},
		{"one with pods stays, and no other goes for it", new(int32(1)), []replicaSet{with("a", "1", 3), old("b", "2", 2)}, nil},
		{"both have pods", new(int32(0)), []replicaSet{with("a", "1", 3), with("b", "2", 2)}, nil},
		{"one that still has pods stays", new(int32(0)), []replicaSet{old("a", "1", 3, leaving), old("b", "2", 2)}, []string{"b"}},
		{"so does one that may still make some", new(int32(0)), []replicaSet{old("a", "1", 3, unseen)}, nil},
		{"one that is being deleted does not count", new(int32(1)), []replicaSet{old("a", "1", 3, deleting), old("b", "2", 2)}, nil},
		{"all are kept", nil, []replicaSet{old("a", "1", 3), old("b", "2", 2)}, nil},
		{"all are kept, said otherwise", new(int32(math.MaxInt32)), []replicaSet{old("a", "1", 3), old("b", "2", 2)}, nil},
	} {
		d := newDeployment(2)
		d.Spec.RevisionHistoryLimit = tt.limit
		var got []string
		for _, rs := range newPass(d, append(tt.sets, newNext("new", 2, revision("20")))...).beyondHistory() {
			got = append(got, rs.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: deleted (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestHistoryIsCleanedUpWhenTheRolloutIsOver(t *testing.T) {
	limited := func(d *appsv1.Deployment) {
		d.Spec.RevisionHistoryLimit = new(int32(0))
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	}
	sets := []replicaSet{newNext("new", 2, revision("2"), sizedFor(2, 2)), newOld("old", 0, 1, revision("1"))}
	busy := []replicaSet{newNext("new", 2, revision("2"), sizedFor(2, 2)), newOld("old", 0, 1, revision("1")), newOld("busy", 1, 1, sizedFor(2, 2))}
	for _, tt := range []struct {
		name string
		d    *appsv1.Deployment
		sets []replicaSet
		want int
	}{
		{"over", newDeployment(2, limited), sets, 1},
		{"not observed", newDeployment(2, limited, func(d *appsv1.Deployment) { d.Generation++ }), sets, 0},
		{"pods are missing", newDeployment(2, limited, func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }), sets, 0},
		{"something is to be done", newDeployment(2, limited), busy, 0},
		{"paused", newDeployment(2, limited, paused, func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }), sets, 1},
		{"to be resized", newDeployment(2, limited, paused), []replicaSet{newOld("old", 0, 1)}, 0},
		{"being deleted", newDeployment(2, limited, func(d *appsv1.Deployment) { d.DeletionTimestamp = new(ago(0)) }), sets, 0},
	} {
		if got := rollout(tt.d, tt.sets, facts{}, now).delete; len(got) != tt.want {
			t.Errorf("%s: %d are deleted, want %d", tt.name, len(got), tt.want)
		}
	}
}
