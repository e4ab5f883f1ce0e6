package deployment

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// TestWakeUps: events of ReplicaSets, pods and namespaces enqueue Deployments. web and twin select app=web, gone
// selects app=gone and has the strategy Recreate. TestWakeUps of package replicaset has all cases of owners.
func TestWakeUps(t *testing.T) {
	named := func(name, app string, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		d := newDeployment(1, edits...)
		d.Name, d.UID, d.Spec.Selector = name, types.UID(name), &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return d
	}
	web, twin, gone := named("web", "web"), named("twin", "web"), named("gone", "gone", recreating)
	of := func(d *appsv1.Deployment, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := owned(web, "v1", newOld("rs-of-"+d.Name, 1, 1))
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, ownerKind)}
		for _, edit := range edits {
			edit(rs)
		}
		return rs
	}
	newer := func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "6" }
	orphan := func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil }
	podOf := func(d *appsv1.Deployment, phase corev1.PodPhase) *caches.Pod {
		rs := of(d)
		return &caches.Pod{Phase: phase, ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: "pod",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
	}
	letGo := func(pod *caches.Pod) *caches.Pod {
		pod.OwnerReferences = nil
		return pod
	}
	namespace := func(uid types.UID) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: uid}}
	}

	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(t, web, twin, gone, of(web), of(gone))
		store := caches.New(client, caches.Config{Name: t.Name()})
		c, err := newController(Config{}, controller.Base{
			Client: client, Caches: store, Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(),
			Recorder: func(string) record.EventRecorder { return nil },
		})
		fakeapi.NoError(t, err)
		var queued []string
		taken := func() []string {
			synctest.Wait()
			defer func() { queued = nil }()
			slices.Sort(queued)
			return queued
		}
		c.loop = controller.NewLoop(controller.LoopConfig{Controller: Name, Queue: queueName, Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
			func(_ context.Context, key cache.ObjectName) (controller.Result, error) {
				queued = append(queued, key.Name)
				return controller.Result{}, nil
			})
		defer fakeapi.FillCaches(t, store)()
		defer fakeapi.Term(t, c.Run)()
		if got := taken(); !slices.Equal(got, []string{"gone", "twin", "web"}) {
			t.Errorf("at the beginning of a term %v are woken", got)
		}

		for _, tt := range []struct {
			name    string
			happens func()
			want    []string
		}{
			{"added", func() { c.enqueuer.OnAdd(of(web)) }, []string{"web"}},
			{"added, nobody's: all who select it", func() { c.enqueuer.OnAdd(of(web, orphan)) }, []string{"twin", "web"}},
			{"changed", func() { c.enqueuer.OnUpdate(of(web), of(web, newer)) }, []string{"web"}},
			{"released: its owner and all who select it", func() { c.enqueuer.OnUpdate(of(gone), of(gone, orphan, newer)) }, []string{"gone", "twin", "web"}},
			{"deleted", func() { c.enqueuer.OnDelete(of(web)) }, []string{"web"}},

			{"a pod is deleted", func() { c.podDeleted(podOf(web, corev1.PodRunning)) }, nil},
			{"a pod is deleted, strategy Recreate", func() { c.podDeleted(podOf(gone, corev1.PodRunning)) }, []string{"gone"}},
			{"a pod is deleted whose ReplicaSet is gone", func() { c.podDeleted(podOf(twin, corev1.PodRunning)) }, nil},
			{"a pod ends, strategy Recreate", func() { c.podUpdated(podOf(gone, corev1.PodRunning), podOf(gone, corev1.PodFailed)) }, []string{"gone"}},
			{"a pod is let go, strategy Recreate", func() { c.podUpdated(podOf(gone, corev1.PodRunning), letGo(podOf(gone, corev1.PodRunning))) }, []string{"gone"}},
			{"a pod changes, strategy Recreate", func() { c.podUpdated(podOf(gone, corev1.PodPending), podOf(gone, corev1.PodRunning)) }, nil},

			{"a namespace of an old name", func() { c.enqueuer.NamespaceHandler().Update(namespace("1"), namespace("2")) }, []string{"gone", "twin", "web"}},
			{"a namespace changes", func() { c.enqueuer.NamespaceHandler().Update(namespace("1"), namespace("1")) }, nil},
		} {
			tt.happens()
			if got := taken(); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v are woken, want %v", tt.name, got, tt.want)
			}
		}
	})
}
