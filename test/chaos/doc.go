// Command chaos runs several managers on a real control plane under a random workload and random faults, all drawn from
// a seed, and then judges the history:
//
//	go run ./test/chaos -manager bin/test/controller-manager-chaos -seed 7 -for 2m
//
// Each manager is a process behind a fault proxy. The simulated kubelets, scheduler and user reach the API server
// directly. A run has four parts: a calm start, chaos, healing, and quiet, in which the cluster must come to rest.
//
// The audit log and a record of all changes show the promises that hold at any time: a single writer, no excess pods,
// no needless deletes, no collected object with an owner, rollouts within bounds, no false node failures, no exits, no
// data races, no log floods. Live reads show the promises at rest. A violation is printed with the seed, the history of
// the object and the faults around the violation. Each violation deserves a deterministic test in test/integration.
package main
