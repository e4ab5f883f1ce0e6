package deployment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
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
	for _, tt := range []struct {
		name  string
		d     *appsv1.Deployment
		facts facts
		sets  []replicaSet
		want  []string
		held  []deferral
	}{
		{"a new Deployment", newDeployment(3), facts{}, nil, []string{"create 3"}, nil},
		{"being deleted", newDeployment(3, func(d *appsv1.Deployment) { d.DeletionTimestamp = new(ago(0)) }), facts{}, []replicaSet{newOld("old", 3, 1)}, nil, nil},
		{"paused: no rollout", newDeployment(3, paused), facts{}, []replicaSet{newOld("old", 3, 1)}, nil, nil},
		{"paused: none is created", newDeployment(3, paused), facts{}, nil, nil, nil},
		{"paused and scaled", newDeployment(5, paused), facts{}, []replicaSet{newNext("new", 1), newOld("old", 3, 1)}, []string{"old 3→4"}, nil},
		{"paused, strategy Recreate, scaled", newDeployment(5, paused, recreating), facts{}, []replicaSet{newNext("new", 0), newOld("old", 3, 1)}, []string{"old 3→5"}, nil},
		{"scaled in a rollout: the rollout waits", newDeployment(5, within(1, 0)), facts{}, []replicaSet{newNext("new", 1, notAvailable, sizedFor(3, 4)), newOld("old", 3, 1, sizedFor(3, 4))},
			[]string{"old 3→5"}, nil},
		{"template and number together: scaled first", newDeployment(5, within(1, 0)), facts{}, []replicaSet{newOld("old", 3, 1, sizedFor(3, 4))}, []string{"old 3→5"}, nil},
		{"paused in a rollout, then strategy Recreate, scaled", newDeployment(8, paused, recreating), facts{}, []replicaSet{newNext("new", 1, sizedFor(4, 5)), newOld("old", 3, 1, sizedFor(4, 5))},
			[]string{"old 3→6", "new 1→2"}, nil},
		{"to nothing", newDeployment(0, paused, recreating), facts{}, []replicaSet{newNext("new", 1, sizedFor(4, 5)), newOld("old", 3, 1, sizedFor(4, 5))},
			[]string{"old 3→0", "new 1→0"}, nil},
		{"with the strategy Recreate old ones are not scaled", newDeployment(5, recreating), facts{}, []replicaSet{newOld("old", 3, 1, sizedFor(3, 3))}, []string{"old 3→0"}, nil},
		{"scaled: at once, also if the last reduction was not seen", newDeployment(12), facts{},
			[]replicaSet{newNext("new", 5, sizedFor(10, 10), unseen), newOld("old", 5, 1, sizedFor(10, 10))}, []string{"new 5→6", "old 5→6"}, nil},
		{"scaled: the rollout goes on without one that rejects that", newDeployment(20), facts{}, []replicaSet{newNext("new", 5, sizedFor(20, 20)),
			newOld("old", 5, 1, sizedFor(10, 10), func(s *replicaSet) { s.backoff, s.rejections = 3*time.Second, manyRejections })}, []string{"new 5→15"}, []deferral{deferResizeBackoff}},

		{"nothing is given up for one that cannot be created", newDeployment(10, within(0, 2)), facts{createDeferred: deferCreateBackoff}, []replicaSet{newOld("old", 10, 1)}, nil, []deferral{deferCreateBackoff}},
		{"nor in a namespace that is terminating", newDeployment(10, within(0, 2)), facts{createDeferred: deferTerminating}, []replicaSet{newOld("old", 10, 1)}, nil, []deferral{deferTerminating}},
		{"a strategy that we do not know", newDeployment(3, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "BlueGreen" }), facts{}, []replicaSet{newOld("old", 3, 1)}, nil, nil},
	} {
		checkPlan(t, tt.name, rollout(tt.d, tt.sets, tt.facts, now), tt.want, tt.held...)
	}
}

// TestOneChangePerReplicaSet: one change holds size, annotations, revision and minReadySeconds.
func TestOneChangePerReplicaSet(t *testing.T) {
	d := newDeployment(3, within(1, 0), annotated("note", "new"), annotated(revisionAnnotation, "2"))
	d.Spec.MinReadySeconds = 5
	next := newNext("back", 1, revision("1"), sizedFor(3, 4))
	old := newOld("old", 2, 1, revision("2"), sizedFor(3, 4))
	got := rollout(d, []replicaSet{next, old}, facts{}, now)
	want := []change{{rs: next.rs, from: 1, to: 2, reason: resizeIntoCapacity, minReadySeconds: new(int32(5)),
		annotations: map[string]string{"note": "new", revisionAnnotation: "3", revisionHistoryAnnotation: "1"}}}
	fakeapi.WantEqual(t, "changes", got.changes, want, cmp.AllowUnexported(change{}))
	if got.revision != "3" {
		t.Errorf("revision of the Deployment %q, want 3", got.revision)
	}

	next = newNext("new", 3, revision("3"), sizedFor(3, 4))
	got = rollout(d, []replicaSet{next, newOld("old", 0, 1, revision("2"))}, facts{}, now)
	want = []change{{rs: next.rs, from: 3, to: 3, minReadySeconds: new(int32(5)), annotations: map[string]string{"note": "new"}}}
	fakeapi.WantEqual(t, "changes of one that has its size", got.changes, want, cmp.AllowUnexported(change{}))
}

// TestRejectedReplicaSetIsSkipped: a policy that rejects changes of one ReplicaSet must not block the rollout, nor
// the observed generation.
func TestRejectedReplicaSetIsSkipped(t *testing.T) {
	older := newOld("older", 5, 2, func(s *replicaSet) { s.backoff = 3 * time.Second })
	got := rollout(newDeployment(10, within(2, 2)), []replicaSet{newNext("new", 0), older, newOld("old", 5, 1)}, facts{}, now)
	fakeapi.WantEqual(t, "sizes", sizesOf(got.changes), []string{"old 5→3", "new 0→4"})
	if !slices.Contains(got.deferred, deferResizeBackoff) || got.requeueAfter != 3*time.Second || got.status.ObservedGeneration != 1 {
		t.Errorf("held are %v, again after %v, generation %d observed", got.deferred, got.requeueAfter, got.status.ObservedGeneration)
	}
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
		{"paused", newDeployment(3, running, deadline(60), paused), sets(), 0},
	} {
		fakeapi.Want(t, tt.name+": next sync", rollout(tt.d, tt.sets, facts{}, now).requeueAfter, tt.want)
	}
}

func TestRevisionOfTheDeployment(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    *appsv1.Deployment
		sets []replicaSet
		want string
	}{
		{"created", newDeployment(3), []replicaSet{newOld("old", 3, 1, revision("4"))}, "5"},
		{"found", newDeployment(3), []replicaSet{newNext("new", 3, revision("6")), newOld("old", 0, 1, revision("4"))}, "6"},
		{"undone", newDeployment(3), []replicaSet{newNext("new", 3, revision("1")), newOld("old", 0, 1, revision("4"))}, "5"},
		{"paused before it was created", newDeployment(3, paused), []replicaSet{newOld("old", 3, 1, revision("4"))}, ""},
		{"being deleted", newDeployment(3, func(d *appsv1.Deployment) { d.DeletionTimestamp = new(ago(0)) }), []replicaSet{newOld("old", 3, 1, revision("4"))}, ""},
	} {
		fakeapi.Want(t, tt.name+": revision", rollout(tt.d, tt.sets, facts{}, now).revision, tt.want)
	}
}

// random returns Deployments and ReplicaSets with random numbers and texts.
type random struct{ *rand.Rand }

func (r random) size() int32 {
	switch r.IntN(12) {
	case 0:
		return math.MaxInt32
	case 1:
		return r.Int32N(math.MaxInt32)
	}
	return r.Int32N(12)
}

func (r random) text() string {
	texts := []string{"", "0", "1", "3", "12", "-1", "x", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", " 7", "1,2,3"}
	return texts[r.IntN(len(texts))]
}

func (r random) annotations(keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if r.IntN(3) > 0 {
			out[key] = r.text()
		}
	}
	return out
}

func (r random) deployment() *appsv1.Deployment {
	d := newDeployment(r.size(), within(r.IntN(8), r.IntN(8)))
	d.Generation = r.Int64N(3)
	d.Spec.MinReadySeconds = 10 * r.Int32N(2)
	d.Annotations = r.annotations(revisionAnnotation, desiredReplicasAnnotation, "note")
	d.Spec.Paused = r.IntN(6) == 0
	if r.IntN(4) == 0 {
		recreating(d)
	}
	if r.IntN(20) == 0 {
		d.Spec.Replicas = nil
	}
	if r.IntN(2) == 0 {
		d.Spec.ProgressDeadlineSeconds = new(r.size())
	}
	if r.IntN(2) == 0 {
		d.Spec.RevisionHistoryLimit = new(r.Int32N(4))
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: r.Int64N(3), Replicas: r.size(), UpdatedReplicas: r.size(), ReadyReplicas: r.size(), AvailableReplicas: r.size()}
	if r.IntN(2) == 0 {
		reasons := []string{reasonComplete, reasonPaused, reasonTimedOut, "ReplicaSetUpdated"}
		d.Status.Conditions = []appsv1.DeploymentCondition{progressing(corev1.ConditionTrue, reasons[r.IntN(4)], time.Duration(r.IntN(1000))*time.Second, time.Hour)}
	}
	return d
}

func (r random) sets() (sets []replicaSet) {
	for i := range r.IntN(5) {
		s := newOld("set-"+strconv.Itoa(i), r.size(), r.IntN(3))
		s.rs.Generation = 1 + r.Int64N(3)
		s.rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: r.Int64N(4), Replicas: r.size(), ReadyReplicas: r.size(), AvailableReplicas: r.size()}
		s.rs.Annotations = r.annotations(revisionAnnotation, revisionHistoryAnnotation, desiredReplicasAnnotation, maxReplicasAnnotation)
		s.pods = podCounts{unfinished: r.IntN(3), ready: int(r.size()), available: int(r.size())}
		s.rs.Spec.MinReadySeconds = 10 * r.Int32N(2)
		s.current = r.IntN(3) == 0
		if r.IntN(3) == 0 {
			s.resizedAt = now
		}
		if r.IntN(5) == 0 {
			s.backoff = time.Second
		}
		if r.IntN(10) == 0 {
			s.rs.Spec.Replicas = nil
		}
		sets = append(sets, s)
	}
	return sets
}

// TestRolloutProperties: for any input a plan stays within the bounds and within int32, writes each ReplicaSet
// once, does not depend on the order of ReplicaSets, and does not modify the input.
func TestRolloutProperties(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	for i := range 4000 {
		d, sets := r.deployment(), r.sets()
		f := facts{terminatingReplicas: r.IntN(2) == 0, pendingOld: r.IntN(2) * r.IntN(4), pendingNew: r.IntN(2) * r.IntN(4)}
		before := d.DeepCopy()
		got := rollout(d, sets, f, now)
		problem := func(format string, args ...any) {
			t.Helper()
			for _, s := range sets {
				t.Logf("%s of %d, current %t, generation %d, minReadySeconds %d, status %+v, pods %+v", s.rs.Name, s.size(), s.current, s.rs.Generation, s.rs.Spec.MinReadySeconds, s.rs.Status, s.pods)
			}
			t.Fatalf("case %d: %s\n%s %+v, facts %+v, creates: %t, changes %v", i, fmt.Sprintf(format, args...), d.Spec.Strategy.Type, boundsOf(d), f, got.create != nil, sizesOf(got.changes))
		}

		// The bounds after each write.
		b := boundsOf(d)
		sum := totalSize(sets)
		most := max(sum, b.maxTotal()-f.pendingOld)
		check := func() {
			if sum > most {
				problem("sizes add up to %d, want at most %d", sum, most)
			}
		}
		if got.create != nil {
			sum += int(*got.create.Spec.Replicas)
			check()
		}
		written := map[*appsv1.ReplicaSet]bool{}
		for _, c := range got.changes {
			if written[c.rs] {
				problem("ReplicaSet %s is written twice", c.rs.Name)
			}
			if c.to < 0 || c.to > math.MaxInt32 {
				problem("ReplicaSet %s gets the size %d", c.rs.Name, c.to)
			}
			written[c.rs] = true
			sum += c.to - c.from
			check()
		}
		var done []change
		for _, c := range got.changes {
			if !c.isRaise() && r.IntN(2) == 0 {
				done = append(done, c)
			}
		}
		sum = totalSize(sets)
		if got.create != nil {
			sum += int(*got.create.Spec.Replicas)
		}
		for _, c := range append(done, got.raisesAfter(done)...) {
			sum += c.to - c.from
		}
		check()
		for _, n := range []int32{got.status.Replicas, got.status.UnavailableReplicas, got.status.UpdatedReplicas, got.status.AvailableReplicas} {
			if n < 0 {
				problem("status %+v", got.status)
			}
		}

		// Order and input.
		shuffled := slices.Clone(sets)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if other := rollout(d, shuffled, f, now); !reflect.DeepEqual(got, other) { // quicker than cmp.Diff
			problem("another order makes another plan:\n%s", cmp.Diff(got, other, cmp.AllowUnexported(plan{}, change{}, passResult{})))
		}
		if !reflect.DeepEqual(before, d) {
			problem("the Deployment was changed:\n%s", cmp.Diff(before, d))
		}
	}
}
