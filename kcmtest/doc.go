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
// There is no election, no port, no pause at the start and no limit on requests. The logger of klog and the feature gates of client-go stay what they are.
// What client-go measures of requests and queues goes to the registry of component-base in a program that imports this package, and may be missing in that
// of controller-runtime.
//
// Several managers may run in one process, one for each API server: two that run the same controllers on one would both make pods. Tests that share an API
// server share a manager, which the test around them starts, or TestMain with [Run].
//
// The user of the rest.Config needs the rights of the controllers; envtest's is an administrator.
package kcmtest
