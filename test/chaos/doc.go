// Command chaos lets several managers work on a real control plane while a random workload and random faults go on, all
// drawn from one seed, and then judges what they did. It finds what nobody thought of scripting; whatever it finds
// deserves a deterministic test in test/integration.
//
//	go run ./test/chaos -manager bin/test/controller-manager-chaos -seed 7 -for 2m
//
// Every manager is a process of its own behind a fault proxy of its own. Kubelets, the scheduler
// and the user, all simulated here, reach the API server directly: what they do is never disturbed by more than an
// outage of the API server itself.
//
// A run has four parts: calm (the managers' sizes are measured), chaos, healing (every fault ends, what only a user could
// mend is mended), quiet (the cluster must come to rest in bounded time). Then it is judged:
//
//   - While it lasted, from the audit log and from a record of every change of every object: one writer at a time, no
//     excess pods, no needless deletes, nothing collected that has an owner, no rollout out of its bounds, no healthy node marked, nothing lost in namespaces that live, no exit, no race,
//     no flood of logs.
//   - At rest, from live reads: every ReplicaSet, Deployment, node and namespace is as it should be, no garbage is left, one process leads, all are
//     ready and no bigger than before.
//
// The workload of a seed is the same each time as long as the cluster answers alike; the schedule of faults is always
// the same. A violation is printed with the seed, the history of its object, and the faults and log lines around it.
package main
