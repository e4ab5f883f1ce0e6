package app

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

// A control plane comes up in any order.
func TestAPIServerThatComesUpLaterIsWaitedFor(t *testing.T) {
	namespace := cluster.Namespace(t)
	cluster.Create(t, controlplane.ReplicaSet(namespace, "web", 1))
	args := append(manager(t), "--leader-elect=false", "--controllers=replicaset")
	controlplane.Must(t, cluster.KillAPIServer())
	p := controlplane.StartProcess(t, args...)
	p.WaitForLog(t, "Waiting for the API server")
	controlplane.Must(t, cluster.StartAPIServer())
	controlplane.AwaitReplicas(t, cluster.Client(t), namespace, "web", 1)
}

// After a restore of etcd, watches wait for versions of the future and caches hold objects that no longer exist. The
// API server sends no error, so the manager must detect the restore itself. It exits, and its successor fills the
// caches again.
func TestManagerExitsAfterEtcdRestore(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	namespace := cluster.Namespace(t)
	args := append(manager(t), "--controllers=replicaset")
	p := controlplane.StartProcess(t, args...)
	cluster.Create(t, controlplane.ReplicaSet(namespace, "kept", 3))
	controlplane.AwaitReplicas(t, cluster.Client(t), namespace, "kept", 3)
	controlplane.Must(t, cluster.BackUpEtcd())
	var many []client.Object
	for range 1000 { // more than API servers write at their start, so that versions stay lower than before
		many = append(many, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "lost-"}})
	}
	cluster.Create(t, many...)
	cluster.Create(t, controlplane.ReplicaSet(namespace, "lost", 50))
	controlplane.AwaitReplicas(t, cluster.Client(t), namespace, "lost", 50)
	controlplane.Must(t, cluster.RestoreEtcd())
	cluster.Create(t, controlplane.ReplicaSet(namespace, "new", 2)) // not shown by watches of the old data
	if code, err := p.Wait(5 * time.Minute); err != nil || code != 1 {
		t.Fatalf("the manager ended with %d, %v; want 1", code, err)
	}
	p.WaitForLog(t, "resourceVersion went backwards")
	controlplane.StartProcess(t, args...)
	controlplane.AwaitReplicas(t, cluster.Client(t), namespace, "kept", 3)
	controlplane.AwaitReplicas(t, cluster.Client(t), namespace, "new", 2)
}
