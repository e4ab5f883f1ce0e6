// Package kubelet is what a kubelet does as others see it: the requests it sends to the API server, and nothing behind them. Nodes register and
// renew their Leases, pods get ready, fail or finish, and pods that are being deleted go. Tests, the benchmark, the chaos program and
// package kcmtest share it; each brings its own pace and its own deaths.
package kubelet
