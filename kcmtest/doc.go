// Package kcmtest runs controllers of kube-controller-manager beside the API server of a test: deleted namespaces end,
// owner references cascade, Deployments make ReplicaSets and pods, and, with [PodsReady], pods become ready.
//
//	func TestOperator(t *testing.T) {
//		cfg := … // of envtest, or of an API server that lets pods be without service accounts
//		kcmtest.Start(t, cfg, kcmtest.PodsReady())
//		…
//	}
//
// [Start] returns when the controllers work, ends the test if they cannot, and stops them when the test ends. The
// argument is a *testing.T, a *testing.B or ginkgo's GinkgoTB(). [Run] is for TestMain and for programs.
//
// There is no election, no port and no limit on requests. The logger of klog, the feature gates of client-go and the
// metrics of client-go stay as the process has set them.
//
// Several managers may run in a process, each for another API server. Tests that share an API server share a manager.
// The user of the rest.Config needs the permissions of the controllers, and of kubelets for [PodsReady].
package kcmtest
