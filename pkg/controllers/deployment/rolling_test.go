package deployment

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestDeadlineShortensTheWaitBetweenSteps(t *testing.T) {
	justNow := func(s *replicaSet) { s.resizedAt = now }
	for seconds, want := range map[int32]time.Duration{1: 50 * time.Millisecond, 10: 500 * time.Millisecond, 600: 2 * time.Second} {
		in := newInput(newDeployment(4, within(1, 1), deadline(seconds)), newNext("new", 2), newOld("old", 2, 1, unseen, justNow))
		if s := in.rollingTargets(); !slices.Contains(s.deferred, deferShrinking) || s.requeueAfter != want {
			t.Errorf("deadline of %d s: held %v, again after %v, want %v", seconds, s.deferred, s.requeueAfter, want)
		}
	}
}

func TestRollingUpdate(t *testing.T) {
	justNow := func(s *replicaSet) { s.resizedAt = now }
	longAgo := func(s *replicaSet) { s.resizedAt = now.Add(-2 * time.Second) }
	slow := func(s *replicaSet) { s.rs.Spec.MinReadySeconds = 10 }
	tooMany := withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas = 2 })
	undeletable := withStatus(func(s *appsv1.ReplicaSetStatus) {
		s.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate"}}
	})
	doubtful := func(s *replicaSet) { s.statusUnreliable = true }
	notAvailable := withStatus(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 0 })
	for _, tt := range []struct {
		name               string
		replicas           int32
		surge, unavailable int
		sets               []replicaSet
		want               []string
		held               []deferral
	}{
		// The new ReplicaSet grows.
		{"complete", 10, 0, 1, []replicaSet{newNext("new", 10)}, nil, nil},
		{"the surge is free", 10, 2, 0, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"new 0→2"}, nil},
		{"no room", 10, 2, 0, []replicaSet{newNext("new", 2, having(0)), newOld("old", 10, 1)}, nil, nil},
		{"too many, and an old one", 2, 1, 0, []replicaSet{newNext("new", 8), newOld("old", 3, 1)}, []string{"new 8→2", "old 3→0"}, nil},

		// Old ReplicaSets shrink, and the new one gets the capacity in the same sync.
		{"one may be missing", 10, 0, 2, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old 10→8", "new 0→2"}, nil},
		{"surge and one missing", 10, 2, 2, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old 10→8", "new 0→4"}, nil},
		{"pods that are not available go first", 10, 2, 2, []replicaSet{newNext("new", 0), newOld("old", 12, 1, having(8))}, []string{"old 12→8", "new 0→4"}, nil},
		{"those of the new one are not counted upon", 10, 2, 2, []replicaSet{newNext("new", 5, having(0)), newOld("old", 8, 1)}, []string{}, nil},
		{"another template comes", 10, 3, 2, []replicaSet{newNext("third", 0), newOld("second", 5, 1, having(0)), newOld("first", 8, 2)},
			[]string{"second 5→0", "third 0→5"}, nil},
		{"the oldest goes first", 4, 1, 0, []replicaSet{newNext("new", 1), newOld("older", 2, 2), newOld("old", 2, 1)}, []string{"older 2→1", "new 1→2"}, nil},
		{"less is available than must be: nothing that is goes", 10, 2, 2, []replicaSet{newNext("new", 0), newOld("old", 10, 1, having(5))}, []string{"old 10→8", "new 0→4"}, nil},
		{"nothing is available: a rollout is not blocked by that", 3, 0, 1, []replicaSet{newNext("new", 0), newOld("old", 3, 1, having(0))}, []string{"old 3→2", "new 0→1"}, nil},
		{"ready is not available: an available pod might go in its place", 3, 0, 1, []replicaSet{newNext("new", 1), newOld("old", 2, 1, seeing(2, 1),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 1 }))}, nil, nil},
		{"pods that are not available take nothing of the spare", 5, 4, 1, []replicaSet{newNext("new", 3), newOld("older", 3, 2, seeing(3, 1),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 1 })), newOld("old", 3, 1)}, []string{"older 3→0", "old 3→1", "new 3→5"}, nil},
		{"unless too few are available", 3, 0, 1, []replicaSet{newNext("new", 1, having(0)), newOld("old", 3, 1, seeing(3, 0), notAvailable)}, []string{"old 3→2"}, nil},
		{"where pods are ready before they are available, one that shrinks counts for nothing until its status shows that", 3, 0, 1,
			[]replicaSet{newNext("new", 1, slow), newOld("old", 2, 1, slow, unseen)}, nil, nil},
		{"so nothing is lost with it where others are enough", 3, 0, 1, []replicaSet{newNext("new", 2, slow), newOld("old", 2, 1, slow, unseen)}, []string{"old 2→0", "new 2→3"}, nil},
		{"then it does", 3, 0, 1, []replicaSet{newNext("new", 1, slow), newOld("old", 2, 1, slow)}, []string{"old 2→1", "new 1→2"}, nil},
		{"and a new one that is cut down does not count at all", 2, 0, 1, []replicaSet{newNext("new", 5, slow), newOld("old", 2, 1, slow)}, []string{"new 5→2", "old 2→1"}, nil},
		{"a pod that cannot be deleted does not stop the others", 10, 1, 0, []replicaSet{newNext("new", 2, slow), newOld("old", 9, 1, slow, undeletable, seeing(10, 10),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 10, 10, 10 }))}, []string{"old 9→8", "new 2→3"}, nil},
		{"but each pod too many may cost an available one", 10, 1, 0, []replicaSet{newNext("new", 2, slow), newOld("old", 9, 1, slow, undeletable, seeing(10, 9),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 10, 10, 9 }))}, nil, nil},
		{"scaled to nothing", 0, 1, 0, []replicaSet{newNext("new", 0), newOld("old", 3, 1)}, []string{"old 3→0"}, nil},

		// Steps wait for the ReplicaSet controller.
		{"one that has not acted on its last size gives up no more, and nobody gets its room", 4, 1, 1, []replicaSet{newNext("new", 2), newOld("old", 2, 1, unseen, justNow)},
			[]string{"new 2→3"}, []deferral{deferShrinking}},
		{"for some time", 4, 1, 1, []replicaSet{newNext("new", 2), newOld("old", 2, 1, unseen, longAgo)}, []string{"old 2→1", "new 2→4"}, nil},
		{"others do meanwhile", 4, 1, 1, []replicaSet{newNext("new", 2), newOld("older", 1, 2, unseen, justNow, having(0)), newOld("old", 2, 1)},
			[]string{"old 2→1", "new 2→3"}, []deferral{deferShrinking}},
		{"and it does itself when it has acted", 4, 1, 1, []replicaSet{newNext("new", 2), newOld("old", 2, 1, justNow)}, []string{"old 2→1", "new 2→4"}, nil},
		{"a new one that is too large is not waited for", 2, 1, 0, []replicaSet{newNext("new", 8, unseen, justNow)}, []string{"new 8→2"}, nil},

		// Unreliable counts.
		{"pods that a size has given up are not counted", 2, 1, 1, []replicaSet{newOld("old", 2, 1), newNext("new", 2, unseen, having(0),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 2 }), seeing(0, 0))}, []string{"old 2→1"}, []deferral{deferPodsDiffer}},
		{"a status that is higher than the size", 2, 1, 1, []replicaSet{newOld("old", 2, 1), newNext("new", 0, unseen, having(2))},
			[]string{"old 2→1"}, []deferral{deferShrinkUnseen}},
		{"no raise before the shrink was seen", 2, 1, 1, []replicaSet{newNext("new", 0, unseen), newOld("old", 1, 1)}, nil, []deferral{deferShrinkUnseen}},
		{"nor while there are too many pods", 2, 1, 0, []replicaSet{newNext("new", 1, tooMany), newOld("old", 1, 1, having(0))}, nil, []deferral{deferShrinkUnseen}},
		{"unless all others give up theirs", 2, 1, 1, []replicaSet{newNext("new", 1, tooMany), newOld("old", 1, 1, having(0))}, []string{"old 1→0", "new 1→2"}, nil},
		{"or have none", 2, 1, 1, []replicaSet{newNext("new", 1, tooMany), newOld("old", 0, 1)}, []string{"new 1→2"}, nil},
		{"or they cannot be deleted", 2, 1, 0, []replicaSet{newNext("new", 1, tooMany, undeletable), newOld("old", 1, 1, having(0))}, []string{"new 1→2"}, nil},
		{"what was raised so counts for nothing until its status shows that", 2, 1, 0, []replicaSet{newNext("new", 1), newOld("old", 2, 1, unseen, doubtful)}, nil, nil},
		{"one that was never reduced needs no status", 2, 1, 1, []replicaSet{newNext("new", 0, func(s *replicaSet) { s.rs.Generation, s.rs.Status.ObservedGeneration = 1, 0 })},
			[]string{"new 0→2"}, nil},
		{"the cache sees a pod become unready before the status does", 3, 1, 1, []replicaSet{newNext("new", 1), newOld("old", 3, 1, seeing(1, 1))},
			nil, []deferral{deferPodsDiffer}},
		{"a cache of pods that is behind costs none that is available", 8, 2, 0, []replicaSet{newNext("new", 0), newOld("older", 5, 2, seeing(0, 0)), newOld("old", 5, 1, having(3))},
			[]string{"old 5→3", "new 0→2"}, []deferral{deferPodsDiffer}},
		{"nor does a clock that is, where pods are ready before they are available", 10, 0, 2, []replicaSet{newNext("new", 0, slow), newOld("old", 10, 1, slow, seeing(10, 7),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 8 }))}, nil, []deferral{deferPodsDiffer}},
		{"pods that are ready again are not given up because no status tells of them yet", 10, 2, 2, []replicaSet{newNext("new", 2, having(0)),
			newOld("older", 5, 2, having(2), seeing(4, 4)), newOld("old", 5, 1, having(4))}, []string{"older 5→4", "old 5→4", "new 2→4"}, []deferral{deferPodsDiffer}},
		{"nor because another ReplicaSet has lost all", 10, 2, 2, []replicaSet{newNext("new", 2, having(0)),
			newOld("older", 5, 2, having(2), seeing(5, 5)), newOld("old", 5, 1, having(0))}, []string{"old 5→3", "new 2→4"}, []deferral{deferPodsDiffer}},
		{"without old pods no difference matters", 10, 2, 2, []replicaSet{newNext("new", 10, having(5), seeing(9, 9))}, nil, nil},
		{"the cache never makes it more", 3, 1, 0, []replicaSet{newNext("new", 1, having(0), seeing(1, 1)), newOld("old", 3, 1)}, nil, []deferral{deferPodsDiffer}},
	} {
		checkPlan(t, tt.name, rollout(t, newDeployment(tt.replicas, within(tt.surge, tt.unavailable)), tt.sets, facts{}), tt.want, tt.held...)
	}
}
