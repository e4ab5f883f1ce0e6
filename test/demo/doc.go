// Command demo runs the manager on a real etcd and kube-apiserver. The demo simulates the scheduler and the kubelets
// of two nodes, so that a node can die. The scenes act and observe through the API server only. After the last scene
// everything runs until Ctrl-C, unless -end is set.
package main
