package deployment

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
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
		{"pods of a create with an unknown outcome keep their room", 10, 4, 2, facts{pendingOld: 3}, []replicaSet{newNext("new", 0), newOld("old", 10, 1)}, []string{"old"}, []string{"new 0→1"}},
		{"a ReplicaSet of this sync has its room", 10, 2, 2, facts{}, []replicaSet{newOld("old", 10, 1)}, []string{"old"}, []string{}},
		{"and gets what was given up", 10, 2, 2, facts{}, []replicaSet{newOld("old", 10, 1)}, nil, []string{"web 2→4"}},
		{"shares: the largest gives what the others get", 8, 0, 1, facts{}, []replicaSet{newNext("new", 5, sizedFor(1, 1)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"old"}, []string{}},
	} {
		p := rollout(t, newDeployment(tt.replicas, within(tt.surge, tt.unavailable)), tt.sets, tt.facts)
		if p.create != nil {
			p.create.Name = "web"
		}
		done := slices.DeleteFunc(slices.Clone(p.changes), func(c change) bool { return c.isRaise() || slices.Contains(tt.refused, c.rs.Name) })
		fakeapi.WantEqual(t, tt.name+": sizes", sizesOf(p.raisesAfter(done)), tt.want)
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
		p := rollout(t, tt.d, []replicaSet{tt.next, tt.old}, facts{})
		got := p.raisesAfter(nil)
		want := []change{{rs: tt.next.rs, from: tt.next.size(), to: tt.next.size(), minReadySeconds: new(int32(5)),
			annotations: map[string]string{"note": "new", revisionAnnotation: "1"}}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(change{})); diff != "" || !p.changes[1].isRaise() {
			t.Errorf("paused %t: changes (-want +got):\n%s\nof the plan %v", tt.d.Spec.Paused, diff, sizesOf(p.changes))
		}
	}
}

func TestBounds(t *testing.T) {
	number := func(n int) *intstr.IntOrString { return new(intstr.FromInt(n)) }
	text := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	for _, tt := range []struct {
		name               string
		replicas           int32
		surge, unavailable *intstr.IntOrString
		want               bounds
	}{
		{"numbers", 10, number(3), number(2), bounds{10, 3, 2}},
		{"percentages: surge is rounded up, unavailability down", 10, text("25%"), text("25%"), bounds{10, 3, 2}},
		{"nothing is missing: nothing", 10, nil, number(2), bounds{10, 0, 2}},
		{"nothing said: one may be unavailable", 10, nil, nil, bounds{10, 0, 1}},
		{"both come to nothing", 2, number(0), text("1%"), bounds{2, 0, 1}},
		{"no more may be unavailable than there are", 5, number(0), number(50), bounds{5, 0, 5}},
		{"all may be", 5, number(1), text("100%"), bounds{5, 1, 5}},
		{"no replicas", 0, number(1), number(1), bounds{0, 1, 0}},
		{"no replicas, both nothing", 0, number(0), number(0), bounds{0, 0, 0}},
		{"text that is no percentage is nothing", 10, text("oops"), number(2), bounds{10, 0, 2}},
		{"negative is nothing", 10, number(-3), number(-2), bounds{10, 0, 1}},
		{"a huge surge", 1 << 30, text("100%"), number(0), bounds{1 << 30, 1 << 30, 0}},
	} {
		d := newDeployment(tt.replicas)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: tt.surge, MaxUnavailable: tt.unavailable}
		fakeapi.Want(t, tt.name, boundsOf(d), tt.want)
		recreating(d)
		fakeapi.Want(t, tt.name+": with the strategy Recreate", boundsOf(d), bounds{replicas: int(tt.replicas)})
	}
	d := newDeployment(0)
	d.Spec.Replicas = nil
	fakeapi.Want(t, "without replicas", boundsOf(d), bounds{1, 0, 1})
}

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
		{"what is left goes to the newest of equals", 4, 0, []replicaSet{newNext("new", 1, sizedFor(3, 3)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(3, 3))},
			[]string{"new 1→2"}},
		{"what is left is taken from the oldest of equals", 2, 0, []replicaSet{newNext("new", 1, sizedFor(3, 3)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(3, 3))},
			[]string{"older 1→0"}},
		{"rounded shares are too large together: the last gets the rest", 23, 0, []replicaSet{newNext("new", 5, sizedFor(15, 15)), newOld("old", 5, 1, sizedFor(15, 15)), newOld("older", 5, 2, sizedFor(15, 15))},
			[]string{"new 5→8", "old 5→8", "older 5→7"}},
		{"they take too much together: the last keeps the rest", 7, 0, []replicaSet{newNext("new", 5, sizedFor(15, 15)), newOld("old", 5, 1, sizedFor(15, 15)), newOld("older", 5, 2, sizedFor(15, 15))},
			[]string{"older 5→2", "old 5→2", "new 5→3"}},
		{"without a new one", 5, 0, []replicaSet{newOld("old", 2, 1, sizedFor(4, 4)), newOld("older", 2, 2, sizedFor(4, 4))}, []string{"old 2→3"}},
		{"to nothing", 0, 0, []replicaSet{newNext("new", 3, sizedFor(6, 6)), newOld("old", 2, 1, sizedFor(6, 6)), newOld("older", 1, 2, sizedFor(6, 6))},
			[]string{"new 3→0", "old 2→0", "older 1→0"}},
		{"to nothing, with a surge", 0, 2, []replicaSet{newNext("new", 3, sizedFor(6, 8)), newOld("old", 2, 1, sizedFor(6, 8)), newOld("older", 1, 2, sizedFor(6, 8))},
			[]string{"new 3→0", "old 2→0", "older 1→0"}},
		{"from nothing: only the new one", 6, 0, []replicaSet{newNext("new", 0), newOld("old", 0, 1), newOld("older", 0, 2)}, []string{"new 0→6"}},
		{"from nothing without a new one: the youngest", 6, 0, []replicaSet{newOld("old", 0, 1), newOld("older", 0, 2)}, []string{"old 0→6"}},
		{"one was not written last time", 5, 0, []replicaSet{newNext("new", 2, sizedFor(5, 5)), newOld("old", 1, 1, sizedFor(3, 3)), newOld("older", 1, 2, sizedFor(5, 5))},
			[]string{"old 1→2"}},
		{"with a surge", 20, 2, []replicaSet{newNext("new", 6, sizedFor(10, 12)), newOld("old", 6, 1, sizedFor(10, 12))}, []string{"new 6→11", "old 6→11"}},
		{"the new one is complete: the old ones go", 2, 1, []replicaSet{newNext("new", 2, sizedFor(2, 3)), newOld("old", 1, 1, sizedFor(5, 6))}, []string{"old 1→0"}},
		{"it has all pods, but they are not available", 2, 1, []replicaSet{newNext("new", 2, having(0), sizedFor(2, 3)), newOld("old", 1, 1, sizedFor(2, 3))}, nil},

		{"the largest has no annotations: it gets what is left all the same", 17, 5, []replicaSet{newNext("new", 5, none), newOld("old", 2, 1, sizedFor(4, 9))}, []string{"new 5→17", "old 2→5"}},

		// Annotations with edited values.
		{"without annotations, without pods: the largest gets it", 6, 0, []replicaSet{newNext("new", 2, none), newOld("old", 1, 1, none)}, []string{"new 2→5"}},
		{"a tiny one makes a huge share", 8, 0, []replicaSet{newNext("new", 5, sizedFor(1, 1)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"old 5→0", "new 5→8"}},
		{"a huge one makes a tiny share", 20, 0, []replicaSet{newNext("new", 5, sizedFor(10, math.MaxInt32)), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"new 5→10", "old 5→10"}},
		{"no overflow, and no size beyond int32", math.MaxInt32, 1 << 29, []replicaSet{newNext("new", 1, sizedFor(10, 13)), newOld("old", 10, 1, sizedFor(10, 13))},
			[]string{"old 10→2147483647", "new 1→206488812"}},
	} {
		checkPlan(t, tt.name, rollout(t, newDeployment(tt.replicas, within(tt.surge, 1), paused), tt.sets, facts{}), tt.want)
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
		got := rollout(t, d, []replicaSet{tt.next, newOld("old", 1, 1, sizedFor(5, 8))}, facts{})
		checkPlan(t, tt.name, got, tt.want, tt.held...)
		fakeapi.Want(t, tt.name+": observed", got.status.ObservedGeneration == 1, tt.held == nil)
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
		in := newInput(newDeployment(tt.replicas, within(0, 1)), s)
		in.d.Status.Replicas = 10
		fakeapi.Want(t, fmt.Sprintf("change to %d replicas, annotation %q", tt.replicas, tt.most), in.proportionalChange(s), tt.want)
	}
}

// stepwise is the rolling update of kube-controller-manager, one step at a time, until no step is possible without
// other pods. The last size is that of the new ReplicaSet.
func stepwise(b bounds, sizes, available []int) []int {
	sizes = slices.Clone(sizes)
	last := len(sizes) - 1
	for {
		before := slices.Clone(sizes)
		total := 0
		for _, n := range sizes {
			total += n
		}
		switch {
		case sizes[last] > b.replicas:
			sizes[last] = b.replicas
			continue
		case sizes[last] < b.replicas && total < b.maxTotal():
			sizes[last] += min(b.maxTotal()-total, b.replicas-sizes[last])
			continue
		}
		may := total - b.minAvailable() - (sizes[last] - available[last])
		if may <= 0 {
			return sizes
		}
		sum := available[last]
		for i := range last {
			if sizes[i] > 0 {
				k := min(may, sizes[i]-available[i])
				if k < 0 {
					return before // kube-controller-manager gives up
				}
				sizes[i], may = sizes[i]-k, may-k
				sum += available[i]
			}
		}
		spare := max(0, sum-b.minAvailable())
		for i := range last {
			k := min(spare, sizes[i])
			sizes[i], spare = sizes[i]-k, spare-k
		}
		if slices.Equal(before, sizes) {
			return sizes
		}
		// Statuses show the reductions before the next step.
		for i := range available {
			available[i] = min(available[i], sizes[i])
		}
	}
}

// TestOneSyncEndsWhereKubeControllerManagerEnds: upstream needs up to three syncs.
func TestOneSyncEndsWhereKubeControllerManagerEnds(t *testing.T) {
	states := 0
	for replicas := 1; replicas <= 5; replicas++ {
		for surge := range 4 {
			for unavailable := range min(replicas, 3) + 1 {
				if surge+unavailable == 0 {
					continue
				}
				d := newDeployment(int32(replicas), within(surge, unavailable))
				b := boundsOf(d)
				var walk func(sets, available []int, left int)
				walk = func(sets, available []int, left int) {
					if len(sets) == 3 {
						states++
						given := []replicaSet{}
						for i, size := range sets {
							s := newOld(fmt.Sprint(i), int32(size), 3-i, having(available[i]))
							s.current = i == 2
							given = append(given, s)
						}
						in := newInput(d, given...)
						got := slices.Clone(sets)
						changes, _ := in.changesFor(in.rollingTargets())
						for _, c := range changes {
							got[int(c.rs.Name[0]-'0')] = c.to
						}
						if want := stepwise(b, sets, slices.Clone(available)); !slices.Equal(got, want) {
							t.Errorf("%+v, sizes %v, available %v: sizes %v, want %v", b, sets, available, got, want)
						}
						return
					}
					for size := range left + 1 {
						for a := range size + 1 {
							walk(append(slices.Clone(sets), size), append(slices.Clone(available), a), left-size)
						}
					}
				}
				walk(nil, nil, b.maxTotal())
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("%d states", states)
}

func TestRolledOut(t *testing.T) {
	all := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	with := func(edit func(*appsv1.DeploymentStatus)) appsv1.DeploymentStatus {
		s := *all.DeepCopy()
		edit(&s)
		return s
	}
	wasComplete := []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: reasonComplete}}
	for _, tt := range []struct {
		name           string
		status         appsv1.DeploymentStatus
		timed, forEver bool // with a deadline, and without
	}{
		{"all available", all, true, true},
		{"one no longer available, and it was complete", with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas, s.Conditions = 2, wasComplete }), true, true},
		{"one not available, and it was never complete", with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 }), false, true},
		{"one old", with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 2 }), false, false},
		{"one too many", with(func(s *appsv1.DeploymentStatus) { s.Replicas = 4 }), false, false},
		{"another generation", with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }), false, false},
	} {
		d := newDeployment(3, deadline(600))
		d.Generation = 2
		fakeapi.Want(t, tt.name+": with a deadline", rolledOut(d, tt.status), tt.timed)
		d.Spec.ProgressDeadlineSeconds = nil
		fakeapi.Want(t, tt.name+": without a deadline", rolledOut(d, tt.status), tt.forEver)
	}
}

func TestLongestStalledRollout(t *testing.T) {
	all := controller.NewKeyStates[cache.ObjectName](newState)
	slow, stuck := newDeployment(3), newDeployment(3, func(d *appsv1.Deployment) { d.Name, d.UID, d.Spec.MinReadySeconds = "stuck", "stuck", 60 })
	record := func(d *appsv1.Deployment, after time.Duration, finished, progressed bool) {
		key := cache.MetaObjectToName(d)
		all.For(key, d.UID).record(syncState{d: d, now: now.Add(after)}, finished, progressed)
	}
	for i := range 60 {
		record(slow, time.Duration(i)*time.Minute, false, true)
		record(stuck, time.Duration(i)*time.Minute, false, i < 10)
	}
	check := func(want time.Duration) {
		t.Helper()
		fakeapi.Want(t, "longest stall", longestStalled(all, now.Add(time.Hour)), want)
	}
	check(50 * time.Minute)
	record(stuck, time.Hour, true, false)
	check(time.Minute)
	record(slow, time.Hour, true, false)
	check(0)
}

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
		{"and lower by number, not by text", new(int32(1)), []replicaSet{old("a", "10", 3), old("b", "9", 2)}, []string{"b"}},
		{"none is the lowest of all", new(int32(1)), []replicaSet{old("a", "1", 3), newOld("b", 0, 2)}, []string{"b"}},
		{"of equals the older", new(int32(1)), []replicaSet{old("a", "1", 2), old("b", "1", 3)}, []string{"b"}},
		{"the two lowest", new(int32(2)), []replicaSet{old("a", "4", 4), old("b", "3", 3), old("c", "2", 2), old("d", "1", 1)}, []string{"d", "c"}},
		{"none is kept", new(int32(0)), []replicaSet{old("a", "1", 3), old("b", "2", 2)}, []string{"a", "b"}},
		{"a negative limit keeps none", new(int32(-1)), []replicaSet{old("a", "1", 3)}, []string{"a"}},
		{"one with pods stays, and no other goes for it", new(int32(1)), []replicaSet{with("a", "1", 3), old("b", "2", 2)}, nil},
		{"one that still has pods stays", new(int32(0)), []replicaSet{old("a", "1", 3, leaving), old("b", "2", 2)}, []string{"b"}},
		{"so does one that may still make some", new(int32(0)), []replicaSet{old("a", "1", 3, unseen)}, nil},
		{"one that is being deleted does not count", new(int32(1)), []replicaSet{old("a", "1", 3, deleting), old("b", "2", 2)}, nil},
		{"all are kept", nil, []replicaSet{old("a", "1", 3), old("b", "2", 2)}, nil},
		{"all are kept, said otherwise", new(int32(math.MaxInt32)), []replicaSet{old("a", "1", 3), old("b", "2", 2)}, nil},
	} {
		d := newDeployment(2)
		d.Spec.RevisionHistoryLimit = tt.limit
		var got []string
		for _, rs := range newInput(d, append(tt.sets, newNext("new", 2, revision("20")))...).beyondHistory() {
			got = append(got, rs.Name)
		}
		fakeapi.WantEqual(t, tt.name+": deleted", got, tt.want)
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
		{"to be changed", newDeployment(2, limited, paused), []replicaSet{newOld("old", 0, 1)}, 0},
	} {
		fakeapi.Want(t, tt.name+": deleted", len(rollout(t, tt.d, tt.sets, facts{}).delete), tt.want)
	}
}
