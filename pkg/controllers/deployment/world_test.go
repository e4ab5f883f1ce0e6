package deployment

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
)

// world runs the controller on a fake API server in a bubble of fake time, beside a ReplicaSet controller. An admission
// webhook modifies new ReplicaSets. Changes of a ReplicaSet do not raise its generation.
type world struct {
	fakemanager.World
	modify     func(*appsv1.ReplicaSet) // nil: no webhook
	webhookOff atomic.Bool
	created    int // ReplicaSets
}

// inWorld runs a test with a Deployment and ReplicaSets. prepare is called before the controller starts.
func inWorld(t *testing.T, prepare func(*world), test func(*testing.T, *world), d *appsv1.Deployment, sets ...*appsv1.ReplicaSet) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d.ResourceVersion = "1" // writes get higher versions
		objects := []runtime.Object{d}
		for _, rs := range sets {
			rs.ResourceVersion = "1"
			objects = append(objects, rs)
		}
		client := fakeapi.NewClientset(t, objects...)
		client.SetListVersions("*")
		w := &world{World: fakemanager.World{Clientset: client, T: t, Registration: Registration(DefaultConfig()), Recorder: record.NewFakeRecorder(1000)}}
		w.PrependReactor("create", "replicasets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			rs := a.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet)
			if w.modify != nil && !w.webhookOff.Load() {
				if size := *rs.Spec.Replicas; w.created > 0 && size != 0 {
					t.Errorf("ReplicaSet %d is created with %d pods while the webhook modifies ReplicaSets, want 0", w.created, size)
				}
				w.modify(rs)
			}
			if w.created++; w.created > 100 { // or a loop without end would keep time from passing
				return true, nil, apierrors.NewForbidden(setResource, rs.Name, errors.New("too many"))
			}
			return false, nil, nil
		})
		prepare(w)
		_, stop := w.Manager()
		defer stop()
		test(t, w)
	})
}

func (w *world) deployment() *appsv1.Deployment {
	return fakeapi.Must(w.AppsV1().Deployments("default").Get(w.T.Context(), "web", metav1.GetOptions{}))
}

func (w *world) sets() []appsv1.ReplicaSet {
	list := fakeapi.Must(w.Tracker().List(appsv1.SchemeGroupVersion.WithResource("replicasets"), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "default"))
	return list.(*appsv1.ReplicaSetList).Items
}

// runFor lets time pass and calls check each second. Statuses of ReplicaSets are up to a second late.
func (w *world) runFor(d time.Duration, check func()) {
	for range d / time.Second {
		time.Sleep(time.Second)
		synctest.Wait()
		check()
		for _, rs := range w.sets() {
			if rs.Status.ObservedGeneration == 0 || rs.Status.Replicas != *rs.Spec.Replicas {
				rs.Status.ObservedGeneration, rs.Status.Replicas = rs.Generation, *rs.Spec.Replicas
				fakeapi.Must(w.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(w.T.Context(), &rs, metav1.UpdateOptions{}))
			}
		}
	}
}

// TestRejectedScalingDoesNotBlockTheRollout: the Deployment is scaled and gets another template
// while a webhook rejects changes of one ReplicaSet.
func TestRejectedScalingDoesNotBlockTheRollout(t *testing.T) {
	d := newDeployment(8, within(1, 0))
	inWorld(t, func(w *world) {
		w.Break(apierrors.NewForbidden(setResource, "older", errors.New("by a webhook")), "patch replicasets older")
	}, func(t *testing.T, w *world) {
		w.runFor(5*time.Second, func() {})
		fakeapi.Want(t, "ReplicaSets of the new template", w.created, 1)
		if w.Count("patch replicasets older") == 0 {
			t.Error("no change was rejected")
		}
	}, d, owned(d, "v-1", newOld("older", 2, 9, sizedFor(5, 6), revision("1"))), owned(d, "v0", newOld("old", 3, 5, sizedFor(5, 6), revision("2"))))
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
				inWorld(t, func(w *world) { w.modify = modify }, func(t *testing.T, w *world) {
					events := w.Recorder.(*record.FakeRecorder).Events
					if len(events) == 0 || !strings.HasPrefix(<-events, "Warning ReplicaSetChanged Deleting new replica set") {
						t.Fatal("the first event is not about the deletion")
					}
					if has := progressingOf(w.deployment().Status); has.Reason != reasonCreateFailed || has.Status != corev1.ConditionFalse {
						t.Errorf("Progressing %+v", has)
					}
					w.runFor(time.Hour, func() {
						if left := len(w.sets()); left > 0 && !t.Failed() {
							t.Errorf("%d ReplicaSets are left", left)
						}
					})
					if w.created < 10 || w.created > 20 { // 5 s, 10 s, 20 s … 5 min
						t.Errorf("%d were created in an hour", w.created)
					}
					fakeapi.Want(t, "collisions", ptr.Deref(w.deployment().Status.CollisionCount, 0), 0)
					w.webhookOff.Store(true)
					w.runFor(maxModified, func() {})
					if sets := w.sets(); len(sets) != 1 || *sets[0].Spec.Replicas != 3 || sets[0].Spec.Template.Spec.Containers[0].Image != "v1" {
						t.Errorf("the webhook is off, and there are %d ReplicaSets: %+v", len(sets), sets)
					}
				}, newDeployment(3, edit, deadline(600)))
			})
		}
	}
}

func TestNewTemplateIsCreatedWithoutBackoff(t *testing.T) {
	inWorld(t, func(w *world) { w.modify = modifications["template"] }, func(t *testing.T, w *world) {
		w.webhookOff.Store(true)
		d := w.deployment()
		d.Generation++
		d.Spec.Template = newTemplate("v2")
		fakeapi.Must(w.AppsV1().Deployments(d.Namespace).Update(t.Context(), d, metav1.UpdateOptions{}))
		w.runFor(minModified-time.Second, func() {})
		if sets := w.sets(); len(sets) != 1 || *sets[0].Spec.Replicas != 3 || w.created != 2 {
			t.Errorf("%d created, ReplicaSets %+v", w.created, sets)
		}
	}, newDeployment(3, within(1, 1)))
}

// TestModifiedReplicaSetThatStays: the deletion is rejected. The name counts as a collision.
func TestModifiedReplicaSetThatStays(t *testing.T) {
	inWorld(t, func(w *world) {
		w.modify = modifications["template"]
		w.Break(apierrors.NewForbidden(setResource, "", errors.New("by the test")), "delete replicasets")
	}, func(t *testing.T, w *world) {
		w.webhookOff.Store(true)
		w.runFor(time.Minute, func() {})
		fakeapi.Want(t, "ReplicaSets", len(w.sets()), 2)
		fakeapi.Want(t, "collisions", ptr.Deref(w.deployment().Status.CollisionCount, 0), 1)
	}, newDeployment(3, within(1, 1)))
}
