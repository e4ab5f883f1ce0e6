package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestRecreate(t *testing.T) {
	terminating := withStatus(func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = new(int32(1)) })
	unfinished := func(s *replicaSet) { s.pods.unfinished = 1 }
	for _, tt := range []struct {
		name  string
		facts facts
		sets  []replicaSet
		want  []string
		held  []deferral
	}{
		{"the first ReplicaSet", facts{}, nil, []string{"create 3"}, nil},
		{"all old ones to nothing", facts{}, []replicaSet{newOld("old", 3, 1), newOld("older", 1, 2), newOld("oldest", 0, 3)}, []string{"older 1→0", "old 3→0"}, nil},
		{"beside a new one that has pods", facts{}, []replicaSet{newNext("new", 1), newOld("old", 3, 1)}, []string{"old 3→0"}, nil},
		{"the new one has too many", facts{}, []replicaSet{newNext("new", 5)}, []string{"new 5→3"}, nil},
		{"complete, while old pods stop", facts{}, []replicaSet{newNext("new", 3), newOld("old", 0, 1, terminating)}, nil, nil},
		{"scaled up: pods of old ones that are still ending are not waited for", facts{}, []replicaSet{newNext("new", 2, sizedFor(2, 2)), newOld("old", 0, 1, terminating)}, []string{"new 2→3"}, nil},
		{"scaled up: the pods of the new one are there, so those of the old one are not", facts{}, []replicaSet{newNext("new", 2), newOld("old", 0, 1)}, []string{"new 2→3"}, nil},

		{"its pods are in the status", facts{}, []replicaSet{newOld("old", 0, 1, withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas = 1 }))}, nil, []deferral{deferOldPods}},
		{"they are terminating", facts{}, []replicaSet{newOld("old", 0, 1, terminating)}, nil, []deferral{deferOldPods}},
		{"they are in the cache", facts{}, []replicaSet{newOld("old", 0, 1, unfinished)}, nil, []deferral{deferOldPods}},
		{"its controller may not know yet that it is to have none", facts{}, []replicaSet{newOld("old", 0, 1, unseen)}, nil, []deferral{deferOldPods}},
		{"one of two is not gone", facts{}, []replicaSet{newOld("old", 0, 1), newOld("older", 0, 2, unfinished)}, nil, []deferral{deferOldPods}},
		{"all are gone", facts{}, []replicaSet{newOld("old", 0, 1)}, []string{"create 3"}, nil},
		{"all are gone and the new one is there", facts{}, []replicaSet{newNext("new", 0), newOld("old", 0, 1)}, []string{"new 0→3"}, nil},
		{"the shrink of the new one was not seen, and is taken back", facts{}, []replicaSet{newNext("new", 0, unseen), newOld("old", 0, 1)}, []string{"new 0→3"}, nil},
		{"one of another template may still come into being", facts{pendingOld: 3}, []replicaSet{newOld("old", 0, 1)}, nil, []deferral{deferOldPods}},
		{"nor does the new one grow beside it", facts{pendingOld: 1}, []replicaSet{newNext("new", 2)}, nil, []deferral{deferOldPods}},
		{"creates were rejected", facts{createDeferred: deferCreateBackoff}, []replicaSet{newOld("old", 0, 1)}, nil, []deferral{deferCreateBackoff}},
	} {
		checkPlan(t, tt.name, rollout(t, newDeployment(3, recreating), tt.sets, tt.facts), tt.want, tt.held...)
	}
}
