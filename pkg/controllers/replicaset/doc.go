// Package replicaset keeps as many active pods for every ReplicaSet as its spec asks for.
//
// The way of one key:
//
//	event ─▶ key ─▶ barrier ─▶ claim ─▶ plan ─▶ create or delete ─▶ status ─▶ when to look again
//
// The package owns the controller reference of pods that a ReplicaSet selects, the creation and deletion of such pods, and the
// status of ReplicaSets. It writes nothing else; pods of a ReplicaSet that is being deleted are the garbage collector's.
//
// # Where to read
//
//   - reconcile.go tells the way above from top to bottom, in numbered steps. A task is what one sync works on: a value, which no step changes.
//   - claim.go, plan.go, victims.go and status.go decide: which pods are ours, how many to create or delete, which ones, what the status is.
//   - read.go, ownership.go, create.go, remove.go and statuswrite.go act, one object each; internal/slots bounds what they have in flight.
//   - memory.go is what lasts from one sync to the next: the ledger (ledger.go), without which something wrong would be done, and the
//     throttle (throttle.go, failed.go), without which too much would be.
//
// # Never more, never fewer
//
// With a constant spec and no other writer a ReplicaSet never has more active pods than it asks for, and our own deletes never
// take it below. Caches lag and answers get lost, so a ledger per ReplicaSet and term remembers what we wrote that the caches
// may not show yet:
//
//   - The highest resourceVersion we wrote. A sync waits until the stores have reached it ([controller.Barrier]). If that takes 30 s, or
//     cannot be told, one sync works on a live read instead; waiting never ends in acting on old data.
//   - The names of pods whose creation was not answered ([controller.Creates]). We choose the names, and the next attempt uses the same ones, so
//     an attempt that turns out to have succeeded makes the next one fail with AlreadyExists instead of making one pod more.
//   - The UIDs of pods that were deleted. A UID never comes back, so such a pod counts as leaving whatever the cache says.
//   - The UIDs of pods whose deletion was not answered. While there are too many pods, these are deleted before any others. A pod that is
//     wanted again is left alone and is not replaced either, until the unanswered delete can no longer be carried out: because the
//     pod has changed since, or because every API server has given it up and a consistent read shows the pod.
//
// A ledger is empty at the start of a term, when the caches may lack the last writes of the leader before us. So the API server is asked
// once how far pods and ReplicaSets have come ([controller.Baseline]). Until the caches have come as far, the first create or delete for a key,
// and the first status with other numbers than it has, are decided on a consistent read of that key's objects.
//
// Deletes, adoptions and releases carry the UID and the resourceVersion of the pod that was judged: a pod that changed since is judged again.
//
// # Slow is not broken
//
// Writes in flight are bounded, and divided between namespaces and ReplicaSets so that whoever has none in flight gets a slot at once, however
// many hang in admission. A sync sends writes for 30 s; the next one of the key goes on from there. While a sync waits, its worker
// takes other keys.
//
// # Where we differ from upstream
//
// The ledger replaces expectations and the consistency store. The order in which pods are deleted is total, so it does not depend on the
// order in which the cache lists them. Successors of pods that fail soon after they were made, because kubelets
// refuse them for instance, are created with a back-off of their own; pods that replace deleted
// ones, or that a change of the spec asks for, do not wait for that. In a namespace that the cache shows as terminating nothing is created.
//
// The ReplicaFailure condition goes away only when creating or deleting was tried again and did not fail. A pod whose adoption or release is
// refused does not hold up the others. A new pod that something gave other labels on its way is deleted. A selector that is empty or missing,
// which the API server does not admit, selects nothing.
//
// A ReplicaSet whose sync failed, for a rejected create for instance, is synced again after at most a minute and at the rate that all failing ReplicaSets
// share, also when an event adds its key. Other ReplicaSets do not wait. A status that only lowers terminatingReplicas is written at most once a second, unless it reaches zero. If a ReplicaSet has a controller
// and more than 14 pods, or its Deployment has, a status that makes less than a third of them available waits for 160 times as long as the last status
// write took, at most 2 s. Updates of pods of a ReplicaSet with more than 14 are gathered for 20 ms. Live reads list the pods that the selector selects and no others; a pod that
// lost its label is released when the cache shows it.
package replicaset
