package deployment

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/pkg/controller"
)

// spoiling is an API server with something before it that changes ReplicaSets, their templates if nothing else is said, and a ReplicaSet controller that is quick.
type spoiling struct {
	*bench
	spoil   func(*appsv1.ReplicaSet)
	heal    bool // ReplicaSets stay as they are
	sizes   []int
	changed bool // the last sync has written the status
}

func newSpoiling(t *testing.T, d *appsv1.Deployment) *spoiling {
	s := &spoiling{bench: newBench(t, d), spoil: func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Spec.Containers[0].Image = "registry/" + rs.Spec.Template.Spec.Containers[0].Image
	}}
	s.on("create replicasets", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		rs := a.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet)
		rs.UID, rs.ResourceVersion, rs.Generation = types.UID(fmt.Sprintf("rs-%d", len(s.sizes))), fmt.Sprint(100+len(s.sizes)), 1
		if !s.heal {
			s.spoil(rs)
		}
		s.sizes = append(s.sizes, orOne(rs.Spec.Replicas))
		return nil, nil // and the rest as ever
	})
	return s
}

// sync is one, on what there is now; then the ReplicaSet controller does its part.
func (s *spoiling) sync(t *testing.T) controller.Result {
	t.Helper()
	s.sets = s.stored(t)
	s.now = s.clock.Now()
	s.read.resolve(s.task, s.sets, func(name string) (*appsv1.ReplicaSet, bool) {
		for _, rs := range s.sets {
			if rs.Name == name {
				return rs, true
			}
		}
		return nil, false
	})
	result, err := s.run(t.Context())
	if err != nil {
		if !apierrors.IsForbidden(err) {
			t.Fatalf("after %v: %v", s.now.Sub(now), err)
		}
		result.RequeueAfter = time.Second // as its back-off is
	}
	s.changed = s.written() != nil
	if s.changed {
		s.d = s.written()
	}
	s.client.ClearActions()
	for _, rs := range s.stored(t) {
		if rs.Status.ObservedGeneration == rs.Generation && rs.Status.Replicas == *rs.Spec.Replicas {
			continue // the tracker takes long for an update
		}
		rs.Status.ObservedGeneration, rs.Status.Replicas = rs.Generation, *rs.Spec.Replicas
		if err := s.client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("replicasets"), rs, rs.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	return result
}

// template gives the Deployment another template.
func (s *spoiling) template(image string) {
	s.d = s.d.DeepCopy()
	s.d.Generation++
	s.d.Spec.Template = newTemplate(image)
}

// during syncs for a while, as often as syncs ask for it and after each change.
func (s *spoiling) during(t *testing.T, while time.Duration, check func()) {
	t.Helper()
	for end := s.clock.Now().Add(while); s.clock.Now().Before(end); {
		again := s.sync(t).RequeueAfter
		check()
		switch event := s.changed || !equality.Semantic.DeepEqual(s.sets, s.stored(t)); {
		case event && (again == 0 || again > 100*time.Millisecond):
			again = 100 * time.Millisecond
		case again == 0:
			again = 10 * time.Second // something else wakes it
		}
		s.clock.Step(again)
	}
}

// TestChangedReplicaSetsDoNotPileUp: for an hour all ReplicaSets are changed on their way. There is one of them at most at any time, only the first has pods, they
// have one name, and in the end the rollout goes on.
func TestChangedReplicaSetsDoNotPileUp(t *testing.T) {
	for name, edit := range map[string]func(*appsv1.Deployment){"rolling": within(1, 1), "recreate": recreating} {
		t.Run(name, func(t *testing.T) {
			s := newSpoiling(t, newDeployment(3, edit, deadline(600)))
			most := 0
			s.during(t, time.Hour, func() { most = max(most, len(s.stored(t))) })
			if most != 1 {
				t.Errorf("there were %d ReplicaSets at a time, want one", most)
			}
			if count := orZero(s.d.Status.CollisionCount); count != 0 {
				t.Errorf("%d collisions were counted", count)
			}
			// 5 s, 10 s, 20 s … 5 min
			if len(s.sizes) < 10 || len(s.sizes) > 20 {
				t.Errorf("%d were made in an hour", len(s.sizes))
			}
			for i, size := range s.sizes {
				if want := []int{3, 0}[min(i, 1)]; size != want {
					t.Errorf("number %d was made with %d pods, want %d", i, size, want)
				}
			}
			s.heal = true
			s.during(t, maxChanged, func() {})
			sets := s.stored(t)
			if len(sets) != 1 || *sets[0].Spec.Replicas != 3 || sets[0].Spec.Template.Spec.Containers[0].Image != "v1" || s.throttle.changed.tries > 0 {
				t.Errorf("templates are no longer changed, and there are %d ReplicaSets: %+v", len(sets), sets)
			}
		})
	}
}

// TestReplicaSetsThatAreNotOursDoNotPileUp: for an hour all of them get another label or lose their owner on their way. None is left, only the first has pods, no name is
// used up, and in the end the rollout goes on.
func TestReplicaSetsThatAreNotOursDoNotPileUp(t *testing.T) {
	for name, spoil := range map[string]func(*appsv1.ReplicaSet){
		"labels": func(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{"app": "other"} },
		"owner":  func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpoiling(t, newDeployment(3, within(1, 1), deadline(600)))
			s.spoil = spoil
			s.during(t, time.Hour, func() {
				if left := len(s.stored(t)); left > 0 && !t.Failed() {
					t.Errorf("after %v %d ReplicaSets are left", s.clock.Since(now), left)
				}
			})
			if len(s.sizes) < 10 || len(s.sizes) > 20 || s.sizes[0] != 3 || slices.Max(s.sizes[1:]) != 0 {
				t.Errorf("ReplicaSets were made with %v pods in an hour", s.sizes)
			}
			if count := orZero(s.d.Status.CollisionCount); count != 0 {
				t.Errorf("%d collisions were counted", count)
			}
			s.heal = true
			s.during(t, maxChanged, func() {})
			if sets := s.stored(t); len(sets) != 1 || *sets[0].Spec.Replicas != 3 {
				t.Errorf("they are no longer changed, and there are %d: %+v", len(sets), sets)
			}
		})
	}
}

// TestAnAdoptionWithoutEffectIsARefusal: something takes the owner away again. It is told, and not tried again at once.
func TestAnAdoptionWithoutEffectIsARefusal(t *testing.T) {
	d := newDeployment(3)
	orphan := owned(d, "v1", newNext("orphan", 3, sizedFor(3, 3), revision("1")))
	orphan.OwnerReferences = nil
	b := newBench(t, d, orphan)
	b.on("patch replicasets", func(int, clienttesting.Action) (runtime.Object, error) { return orphan, nil })
	for range 2 {
		if _, again, err := b.owners.adoptAndRelease(t.Context(), b.task); err != nil || again != time.Minute {
			t.Errorf("again after %v, error %v; want %v", again, err, time.Minute)
		}
	}
	b.wants(t, "get deployments", "patch replicasets")
	b.wantsEvents(t, "Warning FailedAdopt Failed to adopt replica set orphan")
}

// TestAChangedReplicaSetGoesWhenTheTemplateDoes: another template is tried at once, and what is left of the last one is deleted.
func TestAChangedReplicaSetGoesWhenTheTemplateDoes(t *testing.T) {
	s := newSpoiling(t, newDeployment(3, within(1, 1)))
	s.during(t, time.Second, func() {})
	s.heal = true
	s.template("v2")
	s.during(t, time.Second, func() {})
	if sets := s.stored(t); len(sets) != 1 || *sets[0].Spec.Replicas != 3 || len(s.sizes) != 2 || s.sizes[1] != 3 {
		t.Errorf("ReplicaSets %+v, made with %v", sets, s.sizes)
	}
}

// TestAChangedReplicaSetThatStays: one that is being deleted and does not go, because of a finalizer, counts as a collision.
func TestAChangedReplicaSetThatStays(t *testing.T) {
	s := newSpoiling(t, newDeployment(3, within(1, 1)))
	s.on("delete replicasets", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		rs := s.stored(t)[0]
		rs.DeletionTimestamp, rs.Finalizers = new(metav1.NewTime(s.clock.Now())), []string{"example.com/stays"}
		return rs, s.client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("replicasets"), rs, rs.Namespace)
	})
	s.during(t, time.Second, func() {})
	s.heal = true
	s.during(t, minChanged+time.Second, func() {})
	if sets := s.stored(t); len(sets) != 2 || orZero(s.d.Status.CollisionCount) != 1 {
		t.Errorf("%d ReplicaSets, %d collisions; want another beside it, under another name", len(sets), orZero(s.d.Status.CollisionCount))
	}
}

// TestAChangedReplicaSetThatIsWantedAfterAll: its template has become that of the Deployment, so it is one like all others from then on, also when the next template
// takes its place.
func TestAChangedReplicaSetThatIsWantedAfterAll(t *testing.T) {
	s := newSpoiling(t, newDeployment(3, within(1, 1)))
	s.during(t, time.Second, func() {})
	s.heal = true
	s.template("registry/v1")
	s.during(t, time.Second, func() {})
	serving := s.stored(t)
	if len(serving) != 1 || *serving[0].Spec.Replicas != 3 {
		t.Fatalf("ReplicaSets %+v, want the changed one with 3", serving)
	}

	forbidden := true
	s.on("create replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		if forbidden {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, "", errors.New("as the test wishes"))
		}
		return nil, nil
	})
	s.template("v2")
	s.during(t, time.Second, func() {})
	if sets := s.stored(t); len(sets) != 1 || *sets[0].Spec.Replicas != 3 {
		t.Fatalf("ReplicaSets %+v, want the pods kept while no other can be made", sets)
	}
	forbidden = false
	s.during(t, time.Minute, func() {})
	if sets := s.stored(t); len(sets) != 2 {
		t.Errorf("ReplicaSets %+v, want the old one kept for a rollback", sets)
	}
}

// TestAChangedReplicaSetThatCannotBeDeleted counts as a collision: the rollout goes on under another name.
func TestAChangedReplicaSetThatCannotBeDeleted(t *testing.T) {
	s := newSpoiling(t, newDeployment(3, within(1, 1)))
	s.on("delete replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, "", errors.New("as the test wishes"))
	})
	s.during(t, time.Second, func() {})
	s.heal = true
	s.during(t, time.Minute, func() {})
	if sets := s.stored(t); len(sets) != 2 || orZero(s.d.Status.CollisionCount) != 1 {
		t.Errorf("%d ReplicaSets, %d collisions; want another beside it, under another name", len(sets), orZero(s.d.Status.CollisionCount))
	}
}
