package deployment

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestACacheOfPodsThatIsBehindMakesNoPlanBolder: by every status 8 pods are available and 8 must be. The two that may go are those that are not ready.
func TestACacheOfPodsThatIsBehindMakesNoPlanBolder(t *testing.T) {
	older, old := newOld("older", 5, 2, seeing(0, 0)), newOld("old", 5, 1, having(3))
	got := rollout(newDeployment(8, within(2, 0)), []set{older, old, newNext("new", 0)}, facts{}, now)
	if diff := cmp.Diff([]string{"old 5→3", "new 0→2"}, sizesOf(got.changes)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	slow := func(s *set) { s.rs.Spec.MinReadySeconds = 10 }
	for _, available := range []int{8, 7} { // 7: our clock is a second behind
		old := newOld("old", 10, 1, slow, telling(func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas = 8 }), seeing(10, available))
		got := rollout(newDeployment(10, within(0, 2), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 }), []set{old, newNext("new", 0, slow)}, facts{}, now)
		if diff := cmp.Diff([]string{}, sizesOf(got.changes)); diff != "" {
			t.Errorf("%d in the cache: sizes (-want +got):\n%s", available, diff)
		}
	}
}

func TestPodsAreJudgedByTheMinReadySecondsThatAreToCome(t *testing.T) {
	d := newDeployment(10, within(0, 2), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 3600 })
	got := rollout(d, []set{newNext("new", 5), newOld("old", 5, 1)}, facts{}, now)
	if diff := cmp.Diff([]string{}, sizesOf(got.changes)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

// TestRecreateWaitsForWhatMayComeToExist: a create for another template was not answered.
func TestRecreateWaitsForWhatMayComeToExist(t *testing.T) {
	unanswered := facts{oldPodsGone: true, reserved: 3}
	for name, sets := range map[string][]set{"create": {newOld("old", 0, 1)}, "raise": {newNext("new", 0)}} {
		got := rollout(newDeployment(3, recreating), sets, unanswered, now)
		if got.create != nil || len(sizesOf(got.changes)) > 0 || !cmp.Equal(got.held, []hold{holdOldPods}) {
			t.Errorf("%s: create %v, changes %v, held %v; want none, and old pods waited for", name, got.create, sizesOf(got.changes), got.held)
		}
	}
}

func TestNothingIsDecidedWhileSizesAreNotKnown(t *testing.T) {
	d := newDeployment(3, within(1, 0), annotated(appsv1.DeprecatedRollbackTo, "0"))
	d.Generation = 2
	got := rollout(d, []set{newOld("old", 3, 1)}, facts{unsettled: true}, now)
	if got.writes() || got.status.ObservedGeneration != 0 || got.status.Replicas != 3 {
		t.Errorf("plan %+v, want a status alone that does not tell of the generation", got)
	}
}

func TestTheLastRevisionIsThatOfTheOldReplicaSets(t *testing.T) {
	d := newDeployment(3, annotated(appsv1.DeprecatedRollbackTo, "0"))
	// The template is that of revision 1 again, which nobody has numbered 4 yet.
	p := newPass(d, newNext("one", 0, revision("1")), newOld("two", 0, 3, revision("2")), newOld("three", 3, 2, revision("3")))
	if got := p.rollback(); got.to == nil || got.to.Name != "three" {
		t.Errorf("rolled back to %+v, want three", got)
	}
}

func progressingOf(status appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	c := conditions{list: status.Conditions}
	has, _ := c.get(appsv1.DeploymentProgressing)
	return has
}

// TestARevisionInAManifestStartsNoRollout: who applies a manifest with an old revision in it again and again neither starts the clock nor stops it.
func TestARevisionInAManifestStartsNoRollout(t *testing.T) {
	sets := []set{newNext("new", 3, having(2), revision("7"), telling(func(s *appsv1.ReplicaSetStatus) { s.Replicas = 3 }))}
	manifest := func(reason, message string, since time.Duration) *appsv1.Deployment {
		d := newDeployment(3, deadline(600), annotated(revisionAnnotation, "1"))
		d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 2}
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reason,
			LastUpdateTime: ago(since), LastTransitionTime: ago(since), Message: message}}
		return d
	}
	for _, tt := range []struct{ name, reason, message, want string }{
		{"complete", reasonComplete, `ReplicaSet "new" has successfully progressed.`, reasonComplete},
		{"stuck", "ReplicaSetUpdated", `ReplicaSet "new" is progressing.`, reasonTimedOut},
		{"another rollout", reasonTimedOut, `ReplicaSet "old" has timed out progressing.`, "FoundNewReplicaSet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rollout(manifest(tt.reason, tt.message, time.Hour), sets, facts{}, now)
			if has := progressingOf(got.status); has.Reason != tt.want || got.revision != "7" {
				t.Errorf("reason %s, revision %s, want %s and 7", has.Reason, got.revision, tt.want)
			}
		})
	}
}

func TestNothingIsDeletedThatIsResized(t *testing.T) {
	d := newDeployment(3, paused)
	d.Spec.RevisionHistoryLimit = new(int32(0))
	got := rollout(d, []set{newOld("old", 0, 1)}, facts{}, now)
	if diff := cmp.Diff([]string{"old 0→3"}, sizesOf(got.changes)); diff != "" || len(got.delete) > 0 {
		t.Errorf("deletes %d, sizes (-want +got):\n%s", len(got.delete), diff)
	}
}

// TestAGenerationIsNotObservedBeforeItsSizeIsWritten: 2→0→2, faster than the ReplicaSet controller.
func TestAGenerationIsNotObservedBeforeItsSizeIsWritten(t *testing.T) {
	for _, d := range []*appsv1.Deployment{newDeployment(2, deadline(600)), newDeployment(2, recreating, deadline(600))} {
		d.Generation, d.Status.ObservedGeneration = 7, 6
		next := newNext("new", 0, unseen, revision("1"), telling(func(s *appsv1.ReplicaSetStatus) { s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 2, 2, 2 }))
		got := rollout(d, []set{next}, facts{}, now)
		if has := progressingOf(got.status); got.status.ObservedGeneration != 6 || has.Reason == reasonComplete {
			t.Errorf("%s: observed %d with Progressing %s, held %v; want 6 and not complete", d.Spec.Strategy.Type, got.status.ObservedGeneration, has.Reason, got.held)
		}
	}
}

// TestAPausedRecreateIsScaled: it was paused in the middle of a rolling update.
func TestAPausedRecreateIsScaled(t *testing.T) {
	got := rollout(newDeployment(0, recreating, paused), []set{newNext("new", 1, sizedFor(3, 4)), newOld("old", 3, 1, sizedFor(3, 4))}, facts{}, now)
	if diff := cmp.Diff([]string{"old 3→0", "new 1→0"}, sizesOf(got.changes)); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}
