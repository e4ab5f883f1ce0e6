package deployment

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

func TestRollout(t *testing.T) {
	notAvailable := having(0)
	slow := func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 3600 }
	for _, tt := range []struct {
		name  string
		d     *appsv1.Deployment
		facts facts
		sets  []replicaSet
		want  []string
		held  []deferral
	}{
		{"a new Deployment", newDeployment(3), facts{}, nil, []string{"create 3"}, nil},
		{"paused: no rollout", newDeployment(3, paused), facts{}, []replicaSet{newOld("old", 3, 1)}, nil, nil},
		{"paused: none is created", newDeployment(3, paused), facts{}, nil, nil, nil},
		{"paused and scaled", newDeployment(5, paused), facts{}, []replicaSet{newNext("new", 1), newOld("old", 3, 1)}, []string{"old 3→4"}, nil},
		{"paused, strategy Recreate, scaled", newDeployment(5, paused, recreating), facts{}, []replicaSet{newNext("new", 0), newOld("old", 3, 1)}, []string{"old 3→5"}, nil},
		{"scaled in a rollout: the rollout waits", newDeployment(5, within(1, 0)), facts{}, []replicaSet{newNext("new", 1, notAvailable, sizedFor(3, 4)), newOld("old", 3, 1, sizedFor(3, 4))},
			[]string{"old 3→5"}, nil},
		{"template and number together: scaled first", newDeployment(5, within(1, 0)), facts{}, []replicaSet{newOld("old", 3, 1, sizedFor(3, 4))}, []string{"old 3→5"}, nil},
		{"paused in a rollout, then strategy Recreate, scaled", newDeployment(8, paused, recreating), facts{}, []replicaSet{newNext("new", 1, sizedFor(4, 5)), newOld("old", 3, 1, sizedFor(4, 5))},
			[]string{"old 3→6", "new 1→2"}, nil},
		{"with the strategy Recreate old ones are not scaled", newDeployment(5, recreating), facts{}, []replicaSet{newOld("old", 3, 1, sizedFor(3, 3))}, []string{"old 3→0"}, nil},
		{"scaled: at once, also if the last reduction was not seen", newDeployment(12), facts{},
			[]replicaSet{newNext("new", 5, sizedFor(10, 10), unseen), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"new 5→6", "old 5→6"}, nil},
		{"scaled: the rollout goes on without one that rejects that", newDeployment(20), facts{}, []replicaSet{newNext("new", 5, sizedFor(20, 20)),
			newOld("old", 5, 1, sizedFor(10, 10), rejecting, func(s *replicaSet) { s.rejections = manyRejections })}, []string{"new 5→15"}, []deferral{deferResizeBackoff}},

		{"a policy that rejects changes of one ReplicaSet does not block the rollout", newDeployment(10, within(2, 2)), facts{},
			[]replicaSet{newNext("new", 0), newOld("older", 5, 2, rejecting), newOld("old", 5, 1)}, []string{"old 5→3", "new 0→4"}, []deferral{deferResizeBackoff}},

		// The new ReplicaSet is created in the surge, and the same sync raises it by the pods that old ones give up.
		{"created in the surge", newDeployment(10, within(3, 0)), facts{}, []replicaSet{newOld("old", 10, 1)}, []string{"create 3"}, nil},
		{"and in what becomes free", newDeployment(10, within(3, 2)), facts{}, []replicaSet{newOld("old", 10, 1)}, []string{"create 3", "old 10→8", "created 3→5"}, nil},
		{"without a surge", newDeployment(10, within(0, 2)), facts{}, []replicaSet{newOld("old", 10, 1)}, []string{"create 0", "old 10→8", "created 0→2"}, nil},
		{"never more than all", newDeployment(3, within(9, 0)), facts{}, []replicaSet{newOld("old", 3, 1)}, []string{"create 3"}, nil},
		{"never fewer than none", newDeployment(3, within(0, 0)), facts{}, []replicaSet{newOld("old", 7, 1)}, []string{"create 0", "old 7→2", "created 0→1"}, nil},
		{"no replicas", newDeployment(0, within(1, 0)), facts{}, nil, []string{"create 0"}, nil},
		{"pods of another create with an unknown outcome keep their capacity", newDeployment(10, within(3, 0)), facts{pendingOld: 2}, []replicaSet{newOld("old", 10, 1)}, []string{"create 1"}, nil},
		{"also all of the capacity", newDeployment(10, within(3, 2)), facts{pendingOld: 5}, []replicaSet{newOld("old", 10, 1)}, []string{"create 0", "old 10→8"}, nil},
		{"unchanged minReadySeconds", newDeployment(10, within(0, 2)), facts{}, []replicaSet{newNext("new", 5), newOld("old", 5, 1)}, []string{"old 5→3", "new 5→7"}, nil},
		{"more minReadySeconds apply at once", newDeployment(10, within(0, 2), slow), facts{}, []replicaSet{newNext("new", 5), newOld("old", 5, 1)}, nil, nil},
		{"also to surplus pods", newDeployment(10, within(0, 2), slow), facts{}, []replicaSet{newNext("new", 12), newOld("old", 5, 1)}, []string{"new 12→10"}, nil},

		{"nothing is given up for one that cannot be created", newDeployment(10, within(0, 2)), facts{createDeferred: deferCreateBackoff}, []replicaSet{newOld("old", 10, 1)}, nil, []deferral{deferCreateBackoff}},
		{"nor in a namespace that is terminating", newDeployment(10, within(0, 2)), facts{createDeferred: deferTerminating}, []replicaSet{newOld("old", 10, 1)}, nil, []deferral{deferTerminating}},
		{"a strategy that we do not know", newDeployment(3, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "BlueGreen" }), facts{}, []replicaSet{newOld("old", 3, 1)}, nil, nil},
	} {
		checkPlan(t, tt.name, rollout(t, tt.d, tt.sets, tt.facts), tt.want, tt.held...)
	}
}

// TestOneChangePerReplicaSet: one change holds size, annotations, revision and minReadySeconds.
func TestOneChangePerReplicaSet(t *testing.T) {
	d := newDeployment(3, within(1, 0), annotated("note", "new"), annotated(revisionAnnotation, "2"))
	d.Spec.MinReadySeconds = 5
	next := newNext("back", 1, revision("1"), sizedFor(3, 4))
	old := newOld("old", 2, 1, revision("2"), sizedFor(3, 4))
	got := rollout(t, d, []replicaSet{next, old}, facts{})
	want := []change{{rs: next.rs, from: 1, to: 2, minReadySeconds: new(int32(5)),
		annotations: map[string]string{"note": "new", revisionAnnotation: "3", revisionHistoryAnnotation: "1"}}}
	fakeapi.WantEqual(t, "changes", got.changes, want, cmp.AllowUnexported(change{}))
	fakeapi.Want(t, "revision of the Deployment", got.revision, "3")

	next = newNext("new", 3, revision("3"), sizedFor(3, 4))
	got = rollout(t, d, []replicaSet{next, newOld("old", 0, 1, revision("2"))}, facts{})
	want = []change{{rs: next.rs, from: 3, to: 3, minReadySeconds: new(int32(5)), annotations: map[string]string{"note": "new"}}}
	fakeapi.WantEqual(t, "changes of one that has its size", got.changes, want, cmp.AllowUnexported(change{}))
}

func TestRequeueDelay(t *testing.T) {
	running := func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{progressing(corev1.ConditionTrue, "ReplicaSetUpdated", 20*time.Second, time.Minute)}
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 3, 1, 3, 3
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, revisionAnnotation, "2")
	}
	sets := func(edits ...func(*replicaSet)) []replicaSet {
		return []replicaSet{newNext("new", 1, revision("2"), having(1)), newOld("old", 2, 1, append(edits, revision("1"))...)}
	}
	for _, tt := range []struct {
		name string
		d    *appsv1.Deployment
		sets []replicaSet
		want time.Duration
	}{
		{"no deadline", newDeployment(3, running), sets(), 0},
		{"no deadline, as a number", newDeployment(3, running, deadline(math.MaxInt32)), sets(), 0},
		{"at the deadline", newDeployment(3, running, deadline(60)), sets(), 40*time.Second + 1},
		{"after the deadline", newDeployment(3, running, deadline(10)), sets(), 0},
		{"complete", newDeployment(3, running, deadline(60)), []replicaSet{newNext("new", 3, revision("2"))}, 0},
		{"soon, if pods became unready and no event may follow", newDeployment(3, running, deadline(60)), sets(seeing(0, 0)), time.Second},
		{"sooner than that at the deadline", newDeployment(3, running, deadline(20)), sets(seeing(0, 0)), 1},
		{"when a rejected change may be repeated", newDeployment(3, running, deadline(60)), sets(rejecting), 3 * time.Second},
		{"paused", newDeployment(3, running, deadline(60), paused), sets(), 0},
	} {
		fakeapi.Want(t, tt.name+": next sync", rollout(t, tt.d, tt.sets, facts{}).requeueAfter, tt.want)
	}
}

// random returns Deployments and ReplicaSets with random numbers and texts.
type random struct{ *rand.Rand }

func (r random) size() int32 {
	if r.IntN(6) > 0 {
		return r.Int32N(12)
	}
	return []int32{math.MaxInt32, r.Int32N(math.MaxInt32)}[r.IntN(2)]
}

func (r random) annotations(keys ...string) map[string]string {
	texts := []string{"", "0", "1", "3", "12", "-1", "x", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", " 7", "1,2,3"}
	out := map[string]string{}
	for _, key := range keys {
		if r.IntN(3) > 0 {
			out[key] = texts[r.IntN(len(texts))]
		}
	}
	return out
}

func (r random) deployment() *appsv1.Deployment {
	d := newDeployment(r.size(), within(r.IntN(8), r.IntN(8)), deadline(r.size()))
	if r.IntN(4) == 0 {
		recreating(d)
	}
	d.Annotations = r.annotations(revisionAnnotation, desiredReplicasAnnotation, "note")
	d.Generation, d.Spec.Paused, d.Spec.MinReadySeconds, d.Spec.RevisionHistoryLimit = r.Int64N(3), r.IntN(6) == 0, 10*r.Int32N(2), new(r.Int32N(4))
	reasons := []string{reasonComplete, reasonPaused, reasonTimedOut, "ReplicaSetUpdated"}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: r.Int64N(3), Replicas: r.size(), UpdatedReplicas: r.size(), ReadyReplicas: r.size(), AvailableReplicas: r.size(),
		Conditions: []appsv1.DeploymentCondition{progressing(corev1.ConditionTrue, reasons[r.IntN(4)], time.Duration(r.IntN(1000))*time.Second, time.Hour)}}
	return d
}

func (r random) sets() (sets []replicaSet) {
	for i := range r.IntN(5) {
		s := newOld("set-"+strconv.Itoa(i), r.size(), r.IntN(3))
		s.rs.Annotations = r.annotations(revisionAnnotation, revisionHistoryAnnotation, desiredReplicasAnnotation, maxReplicasAnnotation)
		s.rs.Generation, s.rs.Spec.MinReadySeconds, s.current = 1+r.Int64N(3), 10*r.Int32N(2), r.IntN(3) == 0
		s.rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: r.Int64N(4), Replicas: r.size(), ReadyReplicas: r.size(), AvailableReplicas: r.size()}
		s.pods = podCounts{unfinished: r.IntN(3), ready: int(r.size()), available: int(r.size())}
		if r.IntN(3) == 0 {
			s.resizedAt = now
		}
		if r.IntN(5) == 0 {
			s.backoff = time.Second
		}
		sets = append(sets, s)
	}
	return sets
}

// TestRolloutProperties checks the properties of plans, which rollout names, with random input.
func TestRolloutProperties(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	for range 4000 {
		rollout(t, r.deployment(), r.sets(), facts{terminatingReplicas: r.IntN(2) == 0, pendingOld: r.IntN(2) * r.IntN(4), pendingNew: r.IntN(2) * r.IntN(4)})
		if t.Failed() {
			return
		}
	}
}
