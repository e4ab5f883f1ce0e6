package deployment

import (
	"math"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"minikcm/internal/fakeapi"
)

func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, updated, changed time.Duration) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: ago(updated), LastTransitionTime: ago(changed)}
}

func progressing(status corev1.ConditionStatus, reason string, updated, changed time.Duration) appsv1.DeploymentCondition {
	return condition(appsv1.DeploymentProgressing, status, reason, "", updated, changed)
}

func TestCounts(t *testing.T) {
	terminating := func(n int32) func(*replicaSet) {
		return withStatus(func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = &n })
	}
	never := withStatus(func(s *appsv1.ReplicaSetStatus) { *s = appsv1.ReplicaSetStatus{} })
	type counts struct{ Replicas, Updated, Ready, Available, Unavailable, Terminating int32 }
	for _, tt := range []struct {
		name   string
		facts  facts
		sets   []replicaSet
		result rolloutResult
		want   counts
	}{
		{"no ReplicaSet", facts{terminatingReplicas: true}, nil, rolloutResult{}, counts{}},
		{"sums", facts{}, []replicaSet{newNext("new", 3, having(1)), newOld("old", 2, 1)}, rolloutResult{}, counts{5, 3, 3, 3, 2, -1}},
		{"terminating pods", facts{terminatingReplicas: true}, []replicaSet{newNext("new", 1, terminating(2)), newOld("old", 2, 1, terminating(5))}, rolloutResult{}, counts{3, 1, 3, 3, 0, 7}},
		{"one does not tell them", facts{terminatingReplicas: true}, []replicaSet{newNext("new", 1, terminating(2)), newOld("old", 2, 1)}, rolloutResult{}, counts{3, 1, 3, 3, 0, -1}},
		{"one has told nothing yet", facts{terminatingReplicas: true}, []replicaSet{newNext("new", 1, never), newOld("old", 2, 1, terminating(5))}, rolloutResult{}, counts{2, 0, 2, 2, 1, 5}},
		{"more available than asked for", facts{}, []replicaSet{newNext("new", 1, having(4))}, rolloutResult{}, counts{1, 1, 4, 4, 0, -1}},
		{"sizes after the sync", facts{}, []replicaSet{newNext("new", 1)}, rolloutResult{changes: []change{{from: 1, to: 4}}}, counts{1, 1, 1, 1, 3, -1}},
		{"a ReplicaSet of this sync", facts{}, []replicaSet{newOld("old", 1, 1)}, rolloutResult{created: newOld("new", 2, 0).rs}, counts{1, 0, 1, 1, 2, -1}},
		{"sums beyond int32", facts{}, []replicaSet{newNext("new", math.MaxInt32), newOld("old", math.MaxInt32, 1)}, rolloutResult{},
			counts{math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32, 0, -1}},
	} {
		in := newInput(newDeployment(3), tt.sets...)
		in.facts = tt.facts
		s := in.statusCounts(tt.result)
		got := counts{s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas, ptr.Deref(s.TerminatingReplicas, -1)}
		fakeapi.WantEqual(t, tt.name+": counts", got, tt.want)
	}
}

// TestProgressing: the Deployment has 3 replicas, and the last status has 3 pods, 2 of them updated and available.
func TestProgressing(t *testing.T) {
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	same := []replicaSet{newNext("new", 2, revision("2")), newOld("old", 1, 1, revision("1"), having(0))}
	more := []replicaSet{newNext("new", 3, having(2), revision("2"))}
	done := []replicaSet{newNext("new", 3, revision("2"))}
	is := func(status corev1.ConditionStatus, reason, message string, updated, changed time.Duration) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{condition(appsv1.DeploymentProgressing, status, reason, message, updated, changed)}
	}
	before := func(status corev1.ConditionStatus, reason, message string) []appsv1.DeploymentCondition {
		return is(status, reason, message, 30*time.Second, time.Minute)
	}
	was := func(status corev1.ConditionStatus, reason string) []appsv1.DeploymentCondition {
		return before(status, reason, "")
	}
	none, counts, complete := rolloutResult{}, rolloutResult{canProgress: true}, rolloutResult{canProgress: true, observed: true}
	undone := []replicaSet{newNext("back", 2, revision("3")), newOld("old", 1, 1, having(0), revision("2"))}
	withoutNew := []replicaSet{newOld("old", 2, 1), newOld("older", 1, 2, having(0))}
	onlyOld := []replicaSet{newOld("old", 3, 1, having(2), revision("2"))}
	progress := is(yes, "ReplicaSetUpdated", `ReplicaSet "new" is progressing.`, 0, time.Minute)
	for _, tt := range []struct {
		name   string
		edit   func(*appsv1.Deployment)
		was    []appsv1.DeploymentCondition
		sets   []replicaSet
		result rolloutResult
		want   []appsv1.DeploymentCondition
	}{
		{"no deadline: no condition", func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = nil }, was(yes, "ReplicaSetUpdated"), more, counts, []appsv1.DeploymentCondition{}},
		{"nothing happens", nil, was(yes, "ReplicaSetUpdated"), same, counts, was(yes, "ReplicaSetUpdated")},
		{"the first time", nil, nil, same, counts, is(yes, "FoundNewReplicaSet", `Found new replica set "new"`, 0, 0)},
		{"progress", nil, was(yes, "NewReplicaSetCreated"), more, counts, progress},
		{"progress again", nil, was(yes, "ReplicaSetUpdated"), more, counts, progress},
		{"fewer old pods", nil, was(yes, "ReplicaSetUpdated"), []replicaSet{newNext("new", 2, revision("2"))}, counts, progress},
		{"fewer updated pods are no progress", nil, was(yes, "ReplicaSetUpdated"), []replicaSet{newNext("new", 1, revision("2")), newOld("old", 1, 1, revision("1"))},
			counts, was(yes, "ReplicaSetUpdated")},
		{"more ready pods", nil, was(yes, "ReplicaSetUpdated"), []replicaSet{newNext("new", 2, revision("2")), newOld("old", 1, 1, revision("1"), having(0),
			withStatus(func(s *appsv1.ReplicaSetStatus) { s.ReadyReplicas = 1 }))}, counts, progress},
		{"progress after the deadline", nil, was(no, reasonTimedOut), more, counts, is(yes, "ReplicaSetUpdated", `ReplicaSet "new" is progressing.`, 0, 0)},
		{"complete", nil, was(yes, "ReplicaSetUpdated"), done, complete, is(yes, reasonComplete, `ReplicaSet "new" has successfully progressed.`, 0, time.Minute)},
		{"complete after the deadline", nil, was(no, reasonTimedOut), done, complete, is(yes, reasonComplete, `ReplicaSet "new" has successfully progressed.`, 0, 0)},
		{"it was complete: pods that are lost later do not count", nil, was(yes, reasonComplete), []replicaSet{newNext("new", 2, having(0), revision("2"))}, counts, was(yes, reasonComplete)},
		{"it was complete: an old ReplicaSet has pods again", deadline(10), was(yes, reasonComplete), same, counts, was(yes, reasonComplete)},
		{"the last instant before the deadline", deadline(30), was(yes, "ReplicaSetUpdated"), same, counts, was(yes, "ReplicaSetUpdated")},
		{"the deadline after a pause", deadline(10), was(unknown, "DeploymentResumed"), same, counts, is(no, reasonTimedOut, `ReplicaSet "new" has timed out progressing.`, 0, 0)},
		{"the deadline", deadline(10), was(yes, "ReplicaSetUpdated"), same, counts, is(no, reasonTimedOut, `ReplicaSet "new" has timed out progressing.`, 0, 0)},
		{"long after", deadline(10), was(no, reasonTimedOut), same, counts, before(no, reasonTimedOut, `ReplicaSet "new" has timed out progressing.`)},
		{"without a new ReplicaSet it is the Deployment that takes too long", deadline(10), was(no, reasonCreateFailed), withoutNew,
			counts, is(no, reasonTimedOut, `Deployment "web" has timed out progressing.`, 0, time.Minute)},
		{"nothing is judged while nothing can be created", deadline(10), was(no, reasonCreateFailed), withoutNew, none, was(no, reasonCreateFailed)},

		{"a new ReplicaSet", nil, was(yes, reasonComplete), onlyOld,
			rolloutResult{canProgress: true, created: newReplicaSet(newDeployment(3), []replicaSet{newOld("old", 3, 1, revision("2"))}, 0)},
			is(yes, "NewReplicaSetCreated", `Created new replica set "`+newReplicaSet(newDeployment(3), nil, 0).Name+`"`, 0, time.Minute)},
		{"undo after the deadline starts anew", deadline(10), was(no, reasonTimedOut), undone, counts, is(yes, "FoundNewReplicaSet", `Found new replica set "back"`, 0, 0)},
		{"undo of a complete rollout", nil, was(yes, reasonComplete), undone, counts, is(yes, "FoundNewReplicaSet", `Found new replica set "back"`, 0, time.Minute)},
		{"a rollout that is stuck, and a revision that came with a manifest", deadline(10), before(yes, "ReplicaSetUpdated", `ReplicaSet "back" is progressing.`), undone,
			counts, is(no, reasonTimedOut, `ReplicaSet "back" has timed out progressing.`, 0, 0)},
		{"one that was complete, and such a revision", deadline(10), before(yes, reasonComplete, `ReplicaSet "back" has successfully progressed.`),
			[]replicaSet{newNext("back", 2, revision("3"))}, counts, before(yes, reasonComplete, `ReplicaSet "back" has successfully progressed.`)},
		{"one that could not be created is there after all", nil, before(no, reasonCreateFailed, `Failed to create new replica set "new": no`), same,
			counts, is(yes, "FoundNewReplicaSet", `Found new replica set "new"`, 0, 0)},
		{"one that was deleted is created again", deadline(10), before(no, reasonTimedOut, `ReplicaSet "gone" has timed out progressing.`),
			[]replicaSet{newOld("old", 3, 1, having(2), revision("1"))}, rolloutResult{canProgress: true, created: newOld("gone", 0, 0, revision("2")).rs},
			is(yes, "NewReplicaSetCreated", `Created new replica set "gone"`, 0, 0)},
		{"old ones make way after the deadline: that starts anew, too", deadline(10), before(no, reasonTimedOut, `ReplicaSet "old" has timed out progressing.`),
			onlyOld, counts, is(yes, "ReplicaSetUpdated", `Deployment "web" is progressing.`, 0, 0)},
		{"once", deadline(10), before(yes, "ReplicaSetUpdated", `Deployment "web" is progressing.`),
			[]replicaSet{newOld("old", 2, 1, revision("2")), newOld("older", 1, 2, having(0))}, counts, is(no, reasonTimedOut, `Deployment "web" has timed out progressing.`, 0, 0)},
		{"but not while it is paused", paused, before(no, reasonTimedOut, `ReplicaSet "old" has timed out progressing.`),
			onlyOld, none, before(no, reasonTimedOut, `ReplicaSet "old" has timed out progressing.`)},
		{"found once and again", nil, was(yes, "FoundNewReplicaSet"), undone, counts, is(yes, "FoundNewReplicaSet", `Found new replica set "back"`, 0, time.Minute)},

		{"paused", paused, was(yes, "ReplicaSetUpdated"), more, none, is(unknown, reasonPaused, "Deployment is paused", 0, 0)},
		{"still paused", paused, was(unknown, reasonPaused), more, none, before(unknown, reasonPaused, "Deployment is paused")},
		{"paused for the first time it is seen", paused, nil, nil, none, is(unknown, reasonPaused, "Deployment is paused", 0, 0)},
		{"paused after the deadline", paused, was(no, reasonTimedOut), more, none, was(no, reasonTimedOut)},
		{"paused, and its template changed to another one that exists", paused, was(unknown, reasonPaused), []replicaSet{newNext("back", 2, revision("3"))}, none,
			before(unknown, reasonPaused, "Deployment is paused")},
		{"resumed", deadline(10), was(unknown, reasonPaused), same, counts, is(unknown, "DeploymentResumed", "Deployment is resumed", 0, time.Minute)},
		{"resumed, and complete", nil, was(unknown, reasonPaused), done, complete, is(yes, reasonComplete, `ReplicaSet "new" has successfully progressed.`, 0, 0)},
	} {
		d := newDeployment(3, deadline(600), annotated(revisionAnnotation, "2"))
		if tt.edit != nil {
			tt.edit(d)
		}
		d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, Conditions: tt.was}
		in := newInput(d, tt.sets...)
		c := conditions{list: append([]appsv1.DeploymentCondition{}, tt.was...), now: now}
		status := in.statusCounts(tt.result)
		status.ObservedGeneration = 1
		in.setProgressing(tt.result, status, &c)
		fakeapi.WantEqual(t, tt.name+": conditions", c.list, tt.want)
	}
}

func TestAvailable(t *testing.T) {
	for _, tt := range []struct {
		name      string
		d         *appsv1.Deployment
		available int
		want      corev1.ConditionStatus
	}{
		{"all", newDeployment(3, within(1, 1)), 3, corev1.ConditionTrue},
		{"as many as must be", newDeployment(3, within(1, 1)), 2, corev1.ConditionTrue},
		{"fewer", newDeployment(3, within(1, 1)), 1, corev1.ConditionFalse},
		{"Recreate: all", newDeployment(3, recreating), 3, corev1.ConditionTrue},
		{"Recreate: one is missing", newDeployment(3, recreating), 2, corev1.ConditionFalse},
		{"none are asked for", newDeployment(0), 0, corev1.ConditionTrue},
	} {
		status := rollout(t, tt.d, []replicaSet{newNext("new", 3, having(tt.available))}, facts{}).status
		c := conditions{list: status.Conditions}
		got, _ := c.get(appsv1.DeploymentAvailable)
		fakeapi.Want(t, tt.name+": condition Available", got.Status, tt.want)
	}
}

func TestReplicaFailure(t *testing.T) {
	fails := func(message string) func(*replicaSet) {
		return withStatus(func(s *appsv1.ReplicaSetStatus) {
			s.Conditions = []appsv1.ReplicaSetCondition{{Type: "Other", Status: corev1.ConditionTrue},
				{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message, LastTransitionTime: ago(time.Minute)}}
		})
	}
	failure := func(message string) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", message, time.Minute, time.Minute)}
	}
	for _, tt := range []struct {
		name string
		was  []appsv1.DeploymentCondition
		sets []replicaSet
		want []appsv1.DeploymentCondition
	}{
		{"none", nil, []replicaSet{newNext("new", 1)}, nil},
		{"the new one", nil, []replicaSet{newNext("new", 1, fails("new")), newOld("old", 1, 1, fails("old"))}, failure("new")},
		{"the oldest that has one", nil, []replicaSet{newNext("new", 1), newOld("old", 1, 1, fails("old")), newOld("older", 1, 2, fails("older")), newOld("oldest", 1, 3)}, failure("older")},
		{"the message now", failure("before"), []replicaSet{newNext("new", 1, fails("now"))}, failure("now")},
		{"it is over", failure("before"), []replicaSet{newNext("new", 1)}, []appsv1.DeploymentCondition{}},
	} {
		c := conditions{list: append([]appsv1.DeploymentCondition(nil), tt.was...), now: now}
		newInput(newDeployment(3), tt.sets...).setReplicaFailure(&c)
		fakeapi.WantEqual(t, tt.name+": conditions", c.list, tt.want)
	}
}

// TestConditionsKeepTheOrder: conditions of other controllers stay, and times are whole seconds.
func TestConditionsKeepTheOrder(t *testing.T) {
	foreign := condition("Foreign", corev1.ConditionTrue, "R", "m", time.Hour, time.Hour)
	available := condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "R", "m", time.Hour, time.Hour)
	c := conditions{list: []appsv1.DeploymentCondition{available, foreign}, now: now.Add(300 * time.Millisecond)}
	c.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, "R", "m")
	c.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, "P", "")
	changed := condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "R", "m", 0, 0)
	fakeapi.WantEqual(t, "conditions", c.list, []appsv1.DeploymentCondition{changed, foreign, progressing(corev1.ConditionTrue, "P", 0, 0)})
	c.remove(appsv1.DeploymentProgressing)
	c.remove("absent")
	fakeapi.WantEqual(t, "conditions after a removal", c.list, []appsv1.DeploymentCondition{changed, foreign})
}

func TestStatusIsObservedWhenTheSizesAreWritten(t *testing.T) {
	moved := func(d *appsv1.Deployment) { d.Generation = 7 }
	for _, tt := range []struct {
		name  string
		d     *appsv1.Deployment
		facts facts
		sets  []replicaSet
		want  int64
	}{
		{"a rollout begins", newDeployment(3, moved), facts{}, []replicaSet{newOld("old", 3, 1)}, 7},
		{"nothing to do", newDeployment(3, moved), facts{}, []replicaSet{newNext("new", 3)}, 7},
		{"scaled", newDeployment(5, moved), facts{}, []replicaSet{newNext("new", 3, sizedFor(3, 3))}, 7},
		{"scaled, but it has to wait", newDeployment(5, moved), facts{}, []replicaSet{newNext("new", 3, sizedFor(3, 3), unseen)}, 0},
		{"to nothing and back, before its controller has seen either", newDeployment(3, moved), facts{}, []replicaSet{newNext("new", 0, unseen, having(3))}, 0},
		{"so with the strategy Recreate", newDeployment(3, moved, recreating), facts{}, []replicaSet{newNext("new", 0, unseen, having(3))}, 0},
		{"undone, and the new one has to wait", newDeployment(3, moved, within(1, 0)), facts{}, []replicaSet{newNext("back", 1, unseen), newOld("old", 2, 1)}, 0},
		{"a ReplicaSet rejects its changes", newDeployment(3, moved), facts{}, []replicaSet{newNext("new", 1), newOld("old", 2, 1, rejecting)}, 7},
		{"Recreate waits for old pods", newDeployment(3, moved, recreating), facts{}, []replicaSet{newOld("old", 0, 1, having(1))}, 7},
		{"scaled, but pods of the new one are no longer available", newDeployment(5, moved), facts{}, []replicaSet{newNext("new", 5, sizedFor(5, 5), seeing(4, 4)), newOld("old", 1, 1, sizedFor(2, 2))}, 0},
		{"nothing can be created", newDeployment(3, moved), facts{createDeferred: deferCreateBackoff}, []replicaSet{newOld("old", 3, 1)}, 0},
		{"being deleted", newDeployment(3, moved, func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: now} }), facts{}, []replicaSet{newOld("old", 3, 1)}, 7},
	} {
		fakeapi.Want(t, tt.name+": observed generation", rollout(t, tt.d, tt.sets, tt.facts).status.ObservedGeneration, tt.want)
	}
}
