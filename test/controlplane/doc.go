// Package controlplane starts etcd and kube-apiserver as child processes, with RBAC and without controllers. The
// packages of integration tests share a control plane each:
//
//	var cluster *controlplane.Cluster
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
//	}
//
// A controller that would see objects of other tests gets a config of [Scope], and the test labels the objects. Such
// tests run in parallel.
//
// The programs come from KUBEBUILDER_ASSETS or from bin/, see [Binary]. Servers listen on loopback and end with
// [Cluster.Stop], and also when the starting process dies. The ServiceAccount admission plugin is off, no kubelet runs
// pods, and the ClusterRoles admin, edit and view are empty.
//
// Functions with a [testing.TB] end the test on failure. Other functions return errors and suit programs, too.
package controlplane
