// Package replicaset keeps the number of active pods of every ReplicaSet at spec.replicas.
//
// The controller creates, deletes, adopts and releases pods, and writes the status of ReplicaSets.
//
// Invariant: with a constant spec and no other writer, a ReplicaSet never has more active pods than
// specified, and deletes never take it below. Per ReplicaSet, expectations record what caches do not show:
//
//   - versions written, in a [controller.ConsistencyBarrier];
//   - names of creates with unknown outcome. A retry uses the name again;
//   - UIDs of deleted pods, and of pods whose delete has an unknown outcome.
//
// Deletes, adoptions and releases carry UID and version of the pod. Only the delete of a new pod that a webhook
// changed carries no version.
//
// Differences from upstream: the order of deletion is total; creates are delayed while pods keep failing; no
// pod is created in terminating namespaces; ReplicaFailure is removed only after a successful attempt;
// statuses of rollouts are paced; writes in flight are limited and shared fairly.
package replicaset
