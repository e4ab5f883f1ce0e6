package deployment

import (
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/pkg/caches"
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
	podOf := func(d *appsv1.Deployment) *caches.Pod {
		rs := of(d)
		return &caches.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: "pod",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
	}
	namespace := func(uid types.UID) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: uid}}
	}

	synctest.Test(t, func(t *testing.T) {
		w := fakemanager.World{Clientset: fakeapi.NewClientset(t, web, twin, gone, of(web), of(gone)), T: t, Registration: Registration(DefaultConfig())}
		standby, stop := w.Standby()
		defer stop()
		c := standby.(*Controller)
		var taken func() []string
		c.loop, taken = fakemanager.RecordKeys()
		defer fakeapi.Term(t, c.Run)()
		fakeapi.WantEqual(t, "woken at the beginning of a term", taken(), []string{"gone", "twin", "web"})

		for _, tt := range []struct {
			name    string
			happens func()
			want    []string
		}{
			{"added, nobody's: all who select it", func() { c.enqueuer.OnAdd(of(web, orphan)) }, []string{"twin", "web"}},
			{"released: its owner and all who select it", func() { c.enqueuer.OnUpdate(of(gone), of(gone, orphan, newer)) }, []string{"gone", "twin", "web"}},

			{"a pod is deleted", func() { c.podDeleted(podOf(web)) }, nil},
			{"a pod is deleted, strategy Recreate", func() { c.podDeleted(podOf(gone)) }, []string{"gone"}},
			{"a pod is deleted whose ReplicaSet is gone", func() { c.podDeleted(podOf(twin)) }, nil},

			{"a namespace of an old name", func() { c.enqueuer.NamespaceHandler().Update(namespace("1"), namespace("2")) }, []string{"gone", "twin", "web"}},
			{"a namespace changes", func() { c.enqueuer.NamespaceHandler().Update(namespace("1"), namespace("1")) }, nil},
		} {
			tt.happens()
			fakeapi.WantEqual(t, tt.name+": woken", taken(), tt.want)
		}
	})
}
