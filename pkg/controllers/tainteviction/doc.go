// Package tainteviction is the taint-eviction-controller: it deletes pods that do not tolerate a NoExecute
// taint of their node.
//
// The first toleration that matches a taint decides. Without a toleration the pod leaves at once, with
// tolerationSeconds that long after the later of the taint's timeAdded and the pod's binding. Deadlines follow
// every change, but another value with the same toleration delays no eviction, nor does another timeAdded, unless the
// node was seen without the taint. The taints not-ready and unreachable get another timeAdded only if they were removed
// and added again, so they count from then. Deadlines of taints with timeAdded survive a restart. Other taints date
// from the first observation by this process, also as a standby.
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
