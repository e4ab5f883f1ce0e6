package deployment

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"minikcm/pkg/controller"
)

// modifying is a bench with an admission webhook that modifies new ReplicaSets, and a fast ReplicaSet controller.
type modifying struct {
	*bench
	modify  func(*appsv1.ReplicaSet)
	off     bool // the webhook
	created int
	changed bool // the last sync has written the status
}

func newModifying(t *testing.T, d *appsv1.Deployment, modify func(*appsv1.ReplicaSet)) *modifying {
	s := &modifying{bench: newBench(t, d), modify: modify}
	s.On("create replicasets", func(_ int, a clienttesting.Action) (runtime.Object, error) {
		rs := a.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet)
		rs.UID, rs.ResourceVersion, rs.Generation = types.UID(fmt.Sprintf("rs-%d", s.created)), fmt.Sprint(100+s.created), 1
		if !s.off {
			s.modify(rs)
		}
		if size := *rs.Spec.Replicas; s.created > 0 && !s.off && size != 0 {
			t.Errorf("ReplicaSet %d is created with %d pods while the webhook modifies ReplicaSets, want 0", s.created, size)
		}
		s.created++
		return nil, nil // the tracker stores it
	})
	return s
}

// sync runs one sync on the stored objects, and then the ReplicaSet controller.
func (s *modifying) sync(t *testing.T) controller.Result {
	t.Helper()
	s.sets = s.stored(t)
	s.now = s.clock.Now()
	s.expectations.resolveCreates(func(name string) bool {
		return slices.ContainsFunc(s.sets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == name })
	}, s.now)
	s.dropDeleted(s.sets)
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
	s.ClearActions()
	for _, rs := range s.stored(t) {
		if rs.Status.ObservedGeneration == rs.Generation && rs.Status.Replicas == *rs.Spec.Replicas {
			continue // the tracker takes long for an update
		}
		rs.Status.ObservedGeneration, rs.Status.Replicas = rs.Generation, *rs.Spec.Replicas
		if err := s.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("replicasets"), rs, rs.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	return result
}

func (s *modifying) setTemplate(image string) {
	s.d = s.d.DeepCopy()
	s.d.Generation++
	s.d.Spec.Template = newTemplate(image)
}

// syncFor syncs for a while, at the requeue times and after each change.
func (s *modifying) syncFor(t *testing.T, while time.Duration, check func()) {
	t.Helper()
	for end := s.clock.Now().Add(while); s.clock.Now().Before(end); {
		again := s.sync(t).RequeueAfter
		check()
		switch event := s.changed || !equality.Semantic.DeepEqual(s.sets, s.stored(t)); {
		case event && (again == 0 || again > 100*time.Millisecond):
			again = 100 * time.Millisecond
		case again == 0:
			again = 10 * time.Second // another event
		}
		s.clock.Step(again)
	}
}

var modifications = map[string]func(*appsv1.ReplicaSet){
	"template": func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Spec.Containers[0].Image = "registry/" + rs.Spec.Template.Spec.Containers[0].Image
	},
	"labels": func(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{"app": "other"} },
	"owner":  func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil },
}

// TestModifiedReplicaSetsDoNotPileUp: a webhook modifies all new ReplicaSets for an hour. Each ReplicaSet is deleted
// at once, creates back off, no collision is counted, and the rollout continues when the webhook is off.
func TestModifiedReplicaSetsDoNotPileUp(t *testing.T) {
	for field, modify := range modifications {
		for strategy, edit := range map[string]func(*appsv1.Deployment){"rolling": within(1, 1), "recreate": recreating} {
			t.Run(field+" "+strategy, func(t *testing.T) {
				s := newModifying(t, newDeployment(3, edit, deadline(600)), modify)
				s.sync(t)
				s.WantsEvents(t, "Warning ReplicaSetChanged Deleting new replica set")
				if has := progressingOf(s.d.Status); has.Reason != reasonCreateFailed || has.Status != corev1.ConditionFalse {
					t.Errorf("Progressing %+v", has)
				}
				s.syncFor(t, time.Hour, func() {
					if left := len(s.stored(t)); left > 0 && !t.Failed() {
						t.Errorf("after %v %d ReplicaSets are left", s.clock.Since(now), left)
					}
				})
				if s.created < 10 || s.created > 20 { // 5 s, 10 s, 20 s … 5 min
					t.Errorf("%d were created in an hour", s.created)
				}
				if count := ptr.Deref(s.d.Status.CollisionCount, 0); count != 0 {
					t.Errorf("%d collisions were counted", count)
				}
				s.off = true
				s.syncFor(t, maxModified, func() {})
				if sets := s.stored(t); len(sets) != 1 || *sets[0].Spec.Replicas != 3 || sets[0].Spec.Template.Spec.Containers[0].Image != "v1" {
					t.Errorf("the webhook is off, and there are %d ReplicaSets: %+v", len(sets), sets)
				}
			})
		}
	}
}

func TestNewTemplateIsCreatedWithoutBackoff(t *testing.T) {
	s := newModifying(t, newDeployment(3, within(1, 1)), modifications["template"])
	s.syncFor(t, time.Second, func() {})
	s.off = true
	s.setTemplate("v2")
	s.syncFor(t, time.Second, func() {})
	if sets := s.stored(t); len(sets) != 1 || *sets[0].Spec.Replicas != 3 || s.created != 2 {
		t.Errorf("%d created, ReplicaSets %+v", s.created, sets)
	}
}

// TestModifiedReplicaSetThatStays: the deletion is rejected, or a finalizer delays the end. The name counts as a
// collision.
func TestModifiedReplicaSetThatStays(t *testing.T) {
	for name, reply := range map[string]func(*modifying, *appsv1.ReplicaSet) (runtime.Object, error){
		"rejected": func(*modifying, *appsv1.ReplicaSet) (runtime.Object, error) {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, "", errors.New("by the test"))
		},
		"finalizer": func(s *modifying, rs *appsv1.ReplicaSet) (runtime.Object, error) {
			rs.DeletionTimestamp, rs.Finalizers = new(metav1.NewTime(s.clock.Now())), []string{"example.com/stays"}
			return rs, s.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("replicasets"), rs, rs.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newModifying(t, newDeployment(3, within(1, 1)), modifications["template"])
			s.On("delete replicasets", func(int, clienttesting.Action) (runtime.Object, error) { return reply(s, s.stored(t)[0]) })
			s.syncFor(t, time.Second, func() {})
			s.off = true
			s.syncFor(t, time.Minute, func() {})
			if sets := s.stored(t); len(sets) != 2 || ptr.Deref(s.d.Status.CollisionCount, 0) != 1 {
				t.Errorf("%d ReplicaSets, %d collisions, want a second ReplicaSet under another name", len(sets), ptr.Deref(s.d.Status.CollisionCount, 0))
			}
		})
	}
}
