// Package podgc is the pod-garbage-collector-controller: it removes pods that no kubelet will ever remove.
//
//   - Orphaned pods: the node has been missing for Config.Quarantine, new pods have waited for as long,
//     and a live read confirms the absence.
//   - Terminating pods on a node that has the out-of-service taint and is not Ready, confirmed by a live read.
//   - Terminating pods without a node. Only finalizers keep such pods.
//   - Finished pods in excess of Config.TerminatedPodThreshold: evicted pods first, then the oldest.
//
// A pod that has not finished is first patched to phase Failed, an orphaned pod also with the condition
// DisruptionTarget. Then the pod is deleted by UID with grace period 0. Failures are retried with back-off.
//
// Differences from kube-controller-manager v1.37: upstream checks everything every 20 s. Here events queue
// keys, an orphan is deleted after one quarantine instead of one or two, and deletes of pods with finalizers
// are not repeated. Metrics count accepted deletes.
package podgc
