package deployment

import (
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestScale(t *testing.T) {
	none := sizedFor(-1, -1) // not readable
	for _, tt := range []struct {
		name     string
		replicas int32
		surge    int
		sets     []replicaSet
		want     []string
	}{
		{"one grows", 12, 0, []replicaSet{newNext("new", 10, sizedFor(10, 10))}, []string{"new 10→12"}},
		{"one shrinks", 5, 0, []replicaSet{newNext("new", 10, sizedFor(10, 10))}, []string{"new 10→5"}},
		{"the only one with pods may be an old one", 5, 0, []replicaSet{newNext("new", 0), newOld("old", 4, 1, sizedFor(4, 4))}, []string{"old 4→5"}},
		{"shares grow", 10, 0, []replicaSet{newNext("new", 2, sizedFor(5, 5)), newOld("old", 3, 1, sizedFor(5, 5))}, []string{"old 3→6", "new 2→4"}},
		{"shares shrink", 3, 0, []replicaSet{newNext("new", 2, sizedFor(5, 5)), newOld("old", 3, 1, sizedFor(5, 5))}, []string{"old 3→2", "new 2→1"}},
		{"a small one is left without", 4, 0, []replicaSet{newNext("new", 8, sizedFor(9, 9)), newOld("old", 1, 1, sizedFor(9, 9))}, []string{"new 8→4", "old 1→0"}},
		{"three grow", 10, 0, []replicaSet{newNext("new", 2, sizedFor(7, 7)), newOld("old", 3, 1, sizedFor(7, 7)), newOld("older", 2, 2, sizedFor(7, 7))},
			[]string{"old 3→4", "new 2→3", "older 2→3"}},
		{"three shrink", 8, 0, []replicaSet{newNext("new", 2, sizedFor(13, 13)), newOld("old", 8, 1, sizedFor(13, 13)), newOld("older", 3, 2, sizedFor(13, 13))},
			[]string{"old 8→5", "older 3→2", "new 2→1"}},
		{"what is left goes to the newest of equals", 4, 0, []replicaSet{newNext("new", 1, sizedFor(3, 3)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(3, 3))},
			[]string{"new 1→2"}},
		{"what is left is taken from the oldest of equals", 2, 0, []replicaSet{newNext("new", 1, sizedFor(3, 3)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(3, 3))},
			[]string{"older 1→0"}},
		{"without a new one", 5, 0, []replicaSet{newOld("old", 2, 1, sizedFor(4, 4)), newOld("older", 2, 2, sizedFor(4, 4))}, []string{"old 2→3"}},
		{"to nothing", 0, 0, []replicaSet{newNext("new", 3, sizedFor(6, 6)), newOld("old", 2, 1, sizedFor(6, 6)), newOld("older", 1, 2, sizedFor(6, 6))},
			[]string{"new 3→0", "old 2→0", "older 1→0"}},
		{"from nothing: only the new one", 6, 0, []replicaSet{newNext("new", 0), newOld("old", 0, 1), newOld("older", 0, 2)}, []string{"new 0→6"}},
		{"from nothing without a new one: the youngest", 6, 0, []replicaSet{newOld("old", 0, 1), newOld("older", 0, 2)}, []string{"old 0→6"}},
		{"one was not written last time", 5, 0, []replicaSet{newNext("new", 2, sizedFor(5, 5)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(5, 5))},
			[]string{"old 1→2"}},
		{"with a surge", 20, 2, []replicaSet{newNext("new", 6, sizedFor(10, 12)), newOld("old", 6, 1, sizedFor(10, 12))}, []string{"new 6→11", "old 6→11"}},
		{"another surge, too", 50, 6, []replicaSet{newNext("new", 5, sizedFor(10, 13)), newOld("old", 8, 1, sizedFor(10, 13))}, []string{"old 8→34", "new 5→22"}},
		{"another template, too", 14, 0, []replicaSet{newOld("old", 7, 1, sizedFor(10, 10)), newOld("older", 3, 2, sizedFor(10, 10))}, []string{"old 7→10", "older 3→4"}},
		{"the new one is complete: the old ones go", 2, 1, []replicaSet{newNext("new", 2, sizedFor(2, 3)), newOld("old", 1, 1, sizedFor(5, 6))}, []string{"old 1→0"}},
		{"it has all pods, but they are not available", 2, 1, []replicaSet{newNext("new", 2, having(0), sizedFor(2, 3)), newOld("old", 1, 1, sizedFor(2, 3))}, nil},
		{"large rollouts keep their proportions", 117, 23, []replicaSet{newNext("new", 20, sizedFor(100, 120)), newOld("old", 100, 1, sizedFor(100, 120))},
			[]string{"old 100→117", "new 20→23"}},

		{"the largest has no annotations: it gets what is left all the same", 17, 5, []replicaSet{newNext("new", 5, none), newOld("old", 2, 1, sizedFor(4, 9))}, []string{"new 5→17", "old 2→5"}},

		// Annotations with edited values.
		{"without annotations, without pods: the largest gets it", 6, 0, []replicaSet{newNext("new", 2, none), newOld("old", 1, 1, none)}, []string{"new 2→5"}},
		{"a tiny one makes a huge share", 8, 0, []replicaSet{newNext("new", 5, sizedFor(1, 1)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"old 5→0", "new 5→8"}},
		{"a huge one makes a tiny share", 20, 0, []replicaSet{newNext("new", 5, sizedFor(10, math.MaxInt32)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"new 5→10", "old 5→10"}},
		{"no overflow", math.MaxInt32, 0, []replicaSet{newNext("new", 50000, sizedFor(100000, 100000)), newOld("old", 50000, 1, sizedFor(100000, 100000))},
			[]string{"new 50000→1073741824", "old 50000→1073741823"}},
	} {
		checkPlan(t, tt.name, rollout(newDeployment(tt.replicas, within(tt.surge, 1), paused), tt.sets, facts{}, now), tt.want)
	}
}

// TestScalingStopsOldPodsOfACompleteRollout: proportional sizes would add pods that the rollout removes again.
func TestScalingStopsOldPodsOfACompleteRollout(t *testing.T) {
	slow := func(s *replicaSet) { s.rs.Spec.MinReadySeconds = 10 }
	for _, tt := range []struct {
		name string
		next replicaSet
		want []string
		held []deferral
	}{
		{"all agree", newNext("new", 10, sizedFor(10, 15)), []string{"old 1→0"}, nil},
		{"the cache of pods shows fewer", newNext("new", 10, sizedFor(10, 15), seeing(9, 9)), nil, []deferral{deferPodsDiffer}},
		{"the last reduction was not seen", newNext("new", 10, sizedFor(10, 15), slow, unseen), nil, []deferral{deferShrinkUnseen}},
		{"the status tells of fewer: they get their shares", newNext("new", 10, sizedFor(10, 15), having(9)), []string{"new 10→13", "old 1→2"}, nil},
	} {
		d := newDeployment(10, within(5, 0), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = tt.next.rs.Spec.MinReadySeconds })
		got := rollout(d, []replicaSet{tt.next, newOld("old", 1, 1, sizedFor(5, 8))}, facts{}, now)
		checkPlan(t, tt.name, got, tt.want, tt.held...)
		if observed := got.status.ObservedGeneration == 1; observed != (tt.held == nil) {
			t.Errorf("%s: observed %t", tt.name, observed)
		}
	}
}

// TestProportionalChange checks the change of a ReplicaSet of size 10, with 10 pods in the status of the Deployment.
// TestScale has the shares that readable annotations give.
func TestProportionalChange(t *testing.T) {
	for _, tt := range []struct {
		replicas int32
		most     string // annotation
		want     int
	}{
		{20, "10", 10}, {7, "20", -6}, {math.MaxInt32, "1", math.MaxInt32 - 10}, // half a pod is rounded up
		{20, "", 10}, {20, "0", 10}, {20, "many", 10}, {20, "-5", 10}, {20, "2147483648", 10}, // the base is the status
	} {
		s := newNext("new", 10)
		s.rs.Annotations = map[string]string{maxReplicasAnnotation: tt.most}
		p := newPass(newDeployment(tt.replicas, within(0, 1)), s)
		p.d.Status.Replicas = 10
		if got := p.proportionalChange(s); got != tt.want {
			t.Errorf("%d replicas, annotation %q: %d, want %d", tt.replicas, tt.most, got, tt.want)
		}
	}
}
