// Package tainteviction is the taint-eviction-controller: it deletes pods that do not tolerate a NoExecute
// taint of their node.
//
// The deadline of a pod is the start of the taint or the binding of the pod, whichever is later, plus the
// tolerationSeconds of the first toleration that matches. Without a toleration, it is the start itself.
//
//   - A taint starts at its timeAdded, so deadlines survive a restart. Without timeAdded, it starts when this process
//     first saw it, also as a standby.
//   - Another value with the same toleration does not move the deadline, nor does another timeAdded. Only the taints
//     not-ready and unreachable start again with another timeAdded: they were removed and added again.
//   - Each taint starts again if the node was seen without it.
//
// The taints not-ready and unreachable evict only from nodes that are not Ready, and not within
// --node-monitor-grace-period after the start of a term.
//
// Node and pod are read live before an eviction. The pod gets the condition DisruptionTarget and is deleted by
// UID with its own grace period. Failures are retried.
//
// Differences from kube-controller-manager v1.37: upstream counts from its own observation, keeps the first
// timer when taints or tolerations change, gives up after five errors, trusts its cache and identifies pods by
// name.
package tainteviction
