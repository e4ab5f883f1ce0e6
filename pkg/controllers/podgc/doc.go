// Package podgc is the pod-garbage-collector-controller: it removes pods that no kubelet will ever remove.
//
// # What it collects
//
//   - Orphaned pods: bound to a node that does not exist. The node's name must have been missing for Config.Quarantine, and the API
//     server must say so itself. A node that comes back under its name in the meantime keeps its pods; its kubelet decides.
//   - Pods terminating on a node that is out of service: somebody has put the taint node.kubernetes.io/out-of-service on it, whatever
//     value and effect, and it is not Ready. The API server is asked for the node first.
//   - Unscheduled pods that are terminating. The API server removes these itself unless finalizers hold them; what is left to do is to
//     say that they have failed.
//   - Finished pods in excess of Config.TerminatedPodThreshold: those that a kubelet evicted first, then the oldest.
//
// A silent node alone is no reason: its containers may still run.
//
// # What it writes
//
// A pod that has not finished is first marked Failed, an orphaned one with the condition DisruptionTarget, by a patch that names only
// these fields and the UID. Then it is deleted with a grace period of zero, by UID. A pod that finalizers hold is marked and
// deleted once: both are read off the pod, so neither a restart nor time repeats them. What fails is retried with back-off.
//
// Rights needed, and given to upstream's pod-garbage-collector: nodes get, list, watch; pods list, watch, delete; pods/status patch.
//
// # Differences from upstream (kube-controller-manager v1.37)
//
// Upstream looks at everything every 20 s; here events lead to keys, and only the count of finished pods is checked periodically. An
// orphan goes after one quarantine instead of one or two, deletes of pods held by finalizers are not repeated, and the counter of
// deletions counts deletions, not attempts. Reasons, texts, grace period and metric names are upstream's.
package podgc
