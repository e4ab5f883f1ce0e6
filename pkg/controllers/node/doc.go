// Package node is the node-lifecycle-controller. It sets the conditions of silent nodes to Unknown and their
// pods to not Ready. It keeps the taints that follow from conditions and spec.unschedulable, and two beta labels
// equal to their stable labels.
//
// A renewed Lease or a new heartbeat in the status moves the deadline of a node, on a standby too. A sync after
// the deadline:
//
//	API server reachable? ─▶ live Lease ─▶ live node ─▶ status ─▶ zone ─▶ pods ─▶ taints
//
// With leader election, an outage that also stops the renewals of the lease makes no live node Unknown. An outage of
// other writes may, because kubelets cannot post either.
// Zones limit the rate of NoExecute taints. A term adds no NoExecute taint before the node cache was compared with
// the API server.
//
// Differences from kube-controller-manager v1.37: each node has its own deadline. An outage freezes zones. Taints
// keep timeAdded over restarts. Rejected writes are retried with back-off.
package node
