// Package kcmtest runs controllers of kube-controller-manager beside the API server of a test, which has none: namespaces that are deleted go, owner
// references cascade, Deployments make ReplicaSets and these make pods, and, with [PodsReady], pods get ready.
//
//	func TestOperator(t *testing.T) {
//		cfg := … // of envtest, or of an API server that lets pods be without service accounts
//		kcmtest.Start(t, cfg, kcmtest.PodsReady())
//		…
//	}
//
// [Start] returns when the controllers work, ends the test with one line if they cannot, and stops them when the test ends. It takes a
// *testing.T, a *testing.B or ginkgo's GinkgoTB(). [Run] is for TestMain and for programs.
//
// There is no election, no port, no pause at the start and no limit on requests. Nothing that a process has only once is touched: the logger of klog,
// the feature gates of client-go, and the metrics of its clients and queues, stay with whoever has them; who measures the
// requests of all clients in the process, as controller-runtime does, counts those of the controllers too.
//
// Several managers may run in one process, one for each API server: two that run the same controllers on one would both make pods. Tests that share an API
// server share a manager, which the test around them starts, or TestMain with [Run].
//
// The user of the rest.Config needs the rights of the controllers, and of kubelets for [PodsReady]; envtest's is an administrator.
package kcmtest
