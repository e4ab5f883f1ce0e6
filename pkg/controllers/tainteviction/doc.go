// Package tainteviction is the taint-eviction-controller: it deletes the pods that do not tolerate a NoExecute taint of their node, or
// not for any longer.
//
// # What it decides
//
// For every NoExecute taint the first toleration of the pod that matches it counts. None: the pod leaves now. One with
// tolerationSeconds: it leaves that long after the taint and the pod came together, which is the later of the two beginnings (the
// taint's timeAdded, the pod's binding). One without: it stays. The earliest moment is the pod's deadline. The deadline is computed
// anew whenever taints, tolerations or binding change, so it moves both ways, and from what the API server stores, so a restart
// changes nothing. Only a taint without timeAdded (kubectl writes none) dates from when this process first saw it. The
// clocks of the hosts that set these times count, unlike upstream: what one that is behind has set is taken for older. The API
// server stores whole seconds; a pod gets the benefit of the doubt and is never evicted early for it.
//
// # Trust in the health taints
//
// The two taints that the node-lifecycle-controller derives from the Ready condition, not-ready and unreachable, may be hours old when
// a manager comes back, and their nodes may be well. So they count only while the node is not Ready; they evict
// no pod before a term is one Config.TrustWindow old. All other taints count at once.
//
// # What it writes
//
// Before it acts it reads node (one answer serves all pods of the node for a second) and pod from the API server and decides once
// more. Then it sets the pod condition DisruptionTarget, unless the pod has finished, and deletes exactly that pod, by UID, with the
// pod's own grace period. Pod disruption budgets are not asked. What fails is retried with back-off until the pod is gone or no
// longer due. If an eviction is called off after the condition was set, the condition is set to False.
// An event tells when an eviction begins, and when one that was pending is cancelled.
//
// Rights needed: nodes and pods get, list, watch; pods delete; pods/status patch; events create, patch.
//
// # Differences from upstream (kube-controller-manager v1.37)
//
// Upstream counts from when it notices, keeps the first timer whatever happens to taints and tolerations, gives up after five errors
// in 50 ms, knows pods by name, trusts its cache, evicts terminating pods again and goes on after the node was deleted. Reasons and
// texts of events and conditions, the deletion's grace period and the metrics' names are upstream's; the events refer to the
// pod by UID as well.
package tainteviction
