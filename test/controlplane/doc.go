// Package controlplane gives tests a real Kubernetes API: etcd and kube-apiserver as child processes, with RBAC on and
// the controllers missing, so that whatever a test sees was done by the code under test.
//
// A test package that needs an API server starts one for all its tests:
//
//	var cluster *controlplane.Cluster
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
//	}
//
//	func TestScaleUp(t *testing.T) {
//		ns := cluster.Namespace(t)
//		client := cluster.Client(t)
//		controlplane.StartManager(t, command.New(app.Controllers()), "--kubeconfig="+cluster.Kubeconfig(t, "admin", "system:masters"))
//		...
//	}
//
// Controllers that would see objects of other tests get a config of [Scope], and the test labels its objects. Such tests run in parallel.
//
// The binaries come from KUBEBUILDER_ASSETS or, if that is unset, from bin/ of this repository, where `make controlplane`
// puts them. Servers listen on loopback only, on free ports, and live in one temporary directory. They end with
// [Cluster.Stop], and also when the process that started them dies in any way.
//
// What the API server lacks, compared with a whole cluster: the ServiceAccount admission plugin is off (nobody would
// create the service accounts), no kubelet runs pods, and nobody collects garbage or finishes namespaces. The ClusterRoles
// admin, edit and view are empty, because a controller aggregates them.
//
// Functions that take a [testing.TB] end the test on failure. The others return errors and suit programs too.
package controlplane
