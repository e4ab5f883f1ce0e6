package deployment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

func TestRecreate(t *testing.T) {
	terminating := telling(func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = new(int32(1)) })
	unfinished := func(s *replicaSet) { s.pods.unfinished = 1 }
	for _, tt := range []struct {
		name   string
		facts  facts
		sets   []replicaSet
		want   []string
		create bool
		held   []deferral
	}{
		{"the first ReplicaSet", facts{}, nil, nil, true, nil},
		{"all old ones to nothing", facts{}, []replicaSet{newOld("old", 3, 1), newOld("older", 1, 2), newOld("oldest", 0, 3)}, []string{"older 1→0", "old 3→0"}, false, nil},
		{"beside a new one that has pods", facts{}, []replicaSet{newNext("new", 1), newOld("old", 3, 1)}, []string{"old 3→0"}, false, nil},
		{"the new one has too many", facts{}, []replicaSet{newNext("new", 5)}, []string{"new 5→3"}, false, nil},
		{"complete", facts{}, []replicaSet{newNext("new", 3), newOld("old", 0, 1)}, nil, false, nil},
		{"scaled up: pods of old ones that are still ending are not waited for", facts{}, []replicaSet{newNext("new", 2, sizedFor(2, 2)), newOld("old", 0, 1, terminating)}, []string{"new 2→3"}, false, nil},
		{"scaled up: the pods of the new one are there, so those of the old one are not", facts{}, []replicaSet{newNext("new", 2), newOld("old", 0, 1)}, []string{"new 2→3"}, false, nil},

		{"its pods are in the status", facts{}, []replicaSet{newOld("old", 0, 1, telling(func(s *appsv1.ReplicaSetStatus) { s.Replicas = 1 }))}, nil, false, []deferral{deferOldPods}},
		{"they are terminating", facts{}, []replicaSet{newOld("old", 0, 1, terminating)}, nil, false, []deferral{deferOldPods}},
		{"they are in the cache", facts{}, []replicaSet{newOld("old", 0, 1, unfinished)}, nil, false, []deferral{deferOldPods}},
		{"its controller may not know yet that it is to have none", facts{}, []replicaSet{newOld("old", 0, 1, unseen)}, nil, false, []deferral{deferOldPods}},
		{"one of two is not gone", facts{}, []replicaSet{newOld("old", 0, 1), newOld("older", 0, 2, unfinished)}, nil, false, []deferral{deferOldPods}},
		{"all are gone", facts{}, []replicaSet{newOld("old", 0, 1)}, nil, true, nil},
		{"all are gone and the new one is there", facts{}, []replicaSet{newNext("new", 0), newOld("old", 0, 1)}, []string{"new 0→3"}, false, nil},
		{"the shrink of the new one was not seen, and is taken back", facts{}, []replicaSet{newNext("new", 0, unseen), newOld("old", 0, 1)}, []string{"new 0→3"}, false, nil},
		{"one of another template may still come into being", facts{pendingOld: 3}, []replicaSet{newOld("old", 0, 1)}, nil, false, []deferral{deferOldPods}},
		{"also without old ones", facts{pendingOld: 3}, nil, nil, false, []deferral{deferOldPods}},
		{"nor does the new one grow beside it", facts{pendingOld: 1}, []replicaSet{newNext("new", 2)}, nil, false, []deferral{deferOldPods}},
		{"creates were rejected", facts{createDeferred: deferCreateBackoff}, []replicaSet{newOld("old", 0, 1)}, nil, false, []deferral{deferCreateBackoff}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rollout(newDeployment(3, recreating), tt.sets, tt.facts, now)
			if tt.want == nil {
				tt.want = []string{}
			}
			if diff := cmp.Diff(tt.want, sizesOf(got.changes)); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
			if (got.create != nil) != tt.create {
				t.Errorf("create %v, want %t", got.create, tt.create)
			}
			if got.create != nil && *got.create.Spec.Replicas != 3 {
				t.Errorf("created with %d, want 3", *got.create.Spec.Replicas)
			}
			if diff := cmp.Diff(tt.held, got.deferred); diff != "" && len(tt.held)+len(got.deferred) > 0 {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}
