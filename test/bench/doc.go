// Command bench compares controller-manager with upstream's kube-controller-manager: time, processor time, memory and
// requests.
//
//	go run ./test/bench -list
//	go run ./test/bench -runs 3 -scenarios 'scale,namespace*'
//
// A scenario is a kind of work, a contestant a program with flags, see scenario.go. Contestants take turns, each with a
// new etcd and kube-apiserver, except for scenarios that are slow to set up. Both programs run the same controllers as
// the same user.
//
// Times are between requests and watch events of this program, or come from the API server's audit log. Processor time
// and resident memory come from /proc, so this program needs Linux. docs/benchmarks.md describes the method.
package main
