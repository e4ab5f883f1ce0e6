package deployment

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/internal/timing"
)

// now is the time of the unit tests.
var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// newDeployment returns the Deployment web with the template v1, the strategy RollingUpdate, no surge and
// maxUnavailable 1.
func newDeployment(replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: newTemplate("v1"),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func newTemplate(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

func within(surge, unavailable int) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt(surge)), MaxUnavailable: new(intstr.FromInt(unavailable)),
		}
	}
}

func recreating(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }

func paused(d *appsv1.Deployment) { d.Spec.Paused = true }

func deadline(seconds int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
}

func annotated(key, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value) }
}

// newOld returns a ReplicaSet of an older template, created some minutes ago. All pods are available, and the
// status shows them.
func newOld(name string, size int32, minutes int, edits ...func(*replicaSet)) replicaSet {
	s := replicaSet{
		rs: &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: ago(time.Duration(minutes) * time.Minute), Generation: 2},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &size},
			Status:     appsv1.ReplicaSetStatus{ObservedGeneration: 2, Replicas: size, ReadyReplicas: size, AvailableReplicas: size},
		},
		pods: podCounts{unfinished: int(size), ready: int(size), available: int(size)},
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// newNext returns the same with the template of the Deployment.
func newNext(name string, size int32, edits ...func(*replicaSet)) replicaSet {
	s := newOld(name, size, 0, edits...)
	s.current = true
	return s
}

// having sets the available pods in the status and the cache.
func having(available int) func(*replicaSet) {
	return func(s *replicaSet) {
		s.rs.Status.ReadyReplicas, s.rs.Status.AvailableReplicas = int32(available), int32(available)
		s.pods.ready, s.pods.available = available, available
	}
}

// seeing sets the ready and available pods in the cache only.
func seeing(ready, available int) func(*replicaSet) {
	return func(s *replicaSet) { s.pods.ready, s.pods.available = ready, available }
}

func withStatus(edit func(*appsv1.ReplicaSetStatus)) func(*replicaSet) {
	return func(s *replicaSet) { edit(&s.rs.Status) }
}

// sizedFor sets the size annotations.
func sizedFor(desired, most int) func(*replicaSet) {
	return func(s *replicaSet) {
		metav1.SetMetaDataAnnotation(&s.rs.ObjectMeta, desiredReplicasAnnotation, strconv.Itoa(desired))
		metav1.SetMetaDataAnnotation(&s.rs.ObjectMeta, maxReplicasAnnotation, strconv.Itoa(most))
	}
}

func revision(n string) func(*replicaSet) {
	return func(s *replicaSet) { metav1.SetMetaDataAnnotation(&s.rs.ObjectMeta, revisionAnnotation, n) }
}

func deleting(s *replicaSet) { s.rs.DeletionTimestamp = new(ago(time.Second)) }

// rejecting makes changes of the ReplicaSet back off.
func rejecting(s *replicaSet) { s.backoff = 3 * time.Second }

// unseen makes the status older than the last resize.
func unseen(s *replicaSet) { s.rs.Status.ObservedGeneration-- }

func newInput(d *appsv1.Deployment, sets ...replicaSet) rolloutInput {
	return newRolloutInput(d, sets, now)
}

// planned is a plan with the status after it.
type planned struct {
	plan
	status   appsv1.DeploymentStatus
	revision string
}

// rollout plans a sync. The status is that of the complete plan.
//
// For any input, the plan keeps the sizes within the bounds and within int32 after each write, also if only some
// reductions succeed. The plan writes each ReplicaSet once, does not depend on the order of ReplicaSets, and does not
// modify the Deployment.
func rollout(t *testing.T, d *appsv1.Deployment, sets []replicaSet, f facts) planned {
	t.Helper()
	makePlan := func(sets []replicaSet) planned {
		in := newInput(d, sets...)
		in.facts = f
		out := planned{plan: in.makePlan()}
		out.changes = inOrderOfWrites(out.changes)
		out.status, out.revision = in.newStatus(out.result), in.newRevision(out.result)
		out.requeueAfter = timing.MinPositive(out.requeueAfter, in.untilTimeout(out.status, out.result))
		return out
	}
	before := d.DeepCopy()
	got := makePlan(sets)
	problem := func(what string) {
		t.Helper()
		for _, s := range sets {
			t.Logf("%s of %d, current %t, generation %d, minReadySeconds %d, status %+v, pods %+v", s.rs.Name, s.size(), s.current, s.rs.Generation, s.rs.Spec.MinReadySeconds, s.rs.Status, s.pods)
		}
		t.Errorf("%s\n%s %+v, facts %+v, creates: %t, changes %v", what, d.Spec.Strategy.Type, boundsOf(d), f, got.create != nil, sizesOf(got.changes))
	}
	sumAfter := func(changes []change) (sum int) {
		sum = totalSize(sets)
		if got.create != nil {
			sum += int(*got.create.Spec.Replicas)
		}
		for _, c := range changes {
			sum += c.to - c.from
		}
		return sum
	}
	most := max(totalSize(sets), boundsOf(d).maxTotal()-f.pendingOld)
	for i := range len(got.changes) + 1 {
		done := slices.DeleteFunc(slices.Clone(got.changes[:i]), change.isRaise)
		if sum := max(sumAfter(got.changes[:i]), sumAfter(append(done, got.raisesAfter(done)...))); sum > most {
			problem(fmt.Sprintf("sizes add up to %d, want at most %d", sum, most))
		}
		if i < len(got.changes) && slices.ContainsFunc(got.changes[:i], func(c change) bool { return c.rs == got.changes[i].rs }) {
			problem("a ReplicaSet is written twice")
		}
	}
	sizes := []int{int(got.status.Replicas), int(got.status.UnavailableReplicas), int(got.status.UpdatedReplicas), int(got.status.AvailableReplicas)}
	for _, c := range got.changes {
		sizes = append(sizes, c.to)
	}
	if slices.Min(sizes) < 0 || slices.Max(sizes) > math.MaxInt32 {
		problem(fmt.Sprintf("status %+v", got.status))
	}
	reversed := slices.Clone(sets)
	slices.Reverse(reversed)
	if !reflect.DeepEqual(got, makePlan(reversed)) {
		problem("another order makes another plan")
	}
	if !reflect.DeepEqual(before, d) {
		problem("the Deployment was modified")
	}
	return got
}

// inOrderOfWrites returns changes with the raises last.
func inOrderOfWrites(changes []change) []change {
	raises := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return !c.isRaise() })
	return append(slices.DeleteFunc(slices.Clone(changes), change.isRaise), raises...)
}

// checkPlan compares the writes of a plan, "create size" and "name from→to" in their order, and what is deferred.
func checkPlan(t *testing.T, name string, got planned, want []string, deferred ...deferral) {
	t.Helper()
	var writes []string
	if got.create != nil {
		writes = append(writes, fmt.Sprintf("create %d", *got.create.Spec.Replicas))
		got.create.Name = "created"
	}
	if writes = append(writes, sizesOf(got.changes)...); !slices.Equal(writes, want) {
		t.Errorf("%s: writes %q, want %q", name, writes, want)
	}
	if !slices.Equal(got.deferred, deferred) {
		t.Errorf("%s: deferred %v, want %v", name, got.deferred, deferred)
	}
}

// sizesOf returns "name from→to" for each resize, in the order of writes.
func sizesOf(changes []change) []string {
	out := []string{}
	for _, c := range changes {
		if c.from != c.to {
			out = append(out, fmt.Sprintf("%s %d→%d", c.rs.Name, c.from, c.to))
		}
	}
	return out
}

func progressingOf(status appsv1.DeploymentStatus) appsv1.DeploymentCondition {
	c := conditions{list: status.Conditions}
	has, _ := c.get(appsv1.DeploymentProgressing)
	return has
}
