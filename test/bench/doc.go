// Command bench compares controller-manager with upstream's kube-controller-manager on this machine: how long they take, how much
// of the processor and of memory, and how many requests.
//
//	go run ./test/bench -list
//	go run ./test/bench -runs 3 -scenarios 'scale,namespace*'
//
// A scenario is one kind of work, a contestant one program with its flags. Both are values: see scenarios.go and
// contestant.go. Contestants take turns, A B A B, each on an etcd and kube-apiserver that were started for that turn;
// in a few scenarios, which say so, on one that is reused because filling it takes long and nobody changes it. Both
// programs run the same controllers, as a user who is allowed everything, without client certificates of their own for
// each controller.
//
// Times are between the moments at which this program saw something: a write it sent, an event of a watch it has open. Where it
// matters which process wrote, they come from the API server's audit log. Processor time and resident memory are read
// from /proc, so this works on Linux only.
//
// docs/benchmarks.md describes the method and the output.
package main
