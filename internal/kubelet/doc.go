// Package kubelet simulates the requests of kubelets to the API server. Nodes register and renew Leases, pods become
// ready, fail or finish, and deleted pods end. Tests, the benchmark, the chaos program and package kcmtest share this
// package.
package kubelet
