// Package kcmtest runs controllers of kube-controller-manager beside the API server of a test, which has none: namespaces that are deleted go,
// Deployments make ReplicaSets, and these make pods. Nobody runs the pods: who needs them ready writes their status.
//
//	func TestOperator(t *testing.T) {
//		cfg := … // of envtest, or of any API server
//		kcmtest.Start(t, cfg)
//		…
//	}
//
// [Start] returns when the controllers work, ends the test with one line if they cannot, and stops them when the test ends. It takes a
// *testing.T, a *testing.B or ginkgo's GinkgoTB(). [Run] is for TestMain and for programs.
//
// There is no election, no port, no pause at the start and no limit on requests, and nothing is registered that belongs to the whole process: the metrics
// of controller-runtime, the logger of klog and the feature gates of client-go stay what they are. Several managers may run in one process, on
// one API server each or more.
//
// The user of the rest.Config needs the rights of the controllers; envtest's is an administrator.
package kcmtest
