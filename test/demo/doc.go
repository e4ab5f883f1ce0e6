// Command demo shows the manager at work on a control plane of its own: a real etcd and kube-apiserver. It plays the scheduler and the
// kubelets of two nodes itself, so that one of them can die. It tells what happens as it happens, and leaves everything running until Ctrl-C, unless it is
// to end after the last scene.
//
// The scenes act and observe through the API server only, as a user would; the one thing taken from the manager itself is its log,
// for why a pod was chosen.
package main
