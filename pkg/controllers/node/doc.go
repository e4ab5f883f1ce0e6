// Package node is the node-lifecycle-controller. It sets the conditions of silent nodes to Unknown and their
// pods to not Ready, and keeps the taints and two labels of nodes that follow from conditions.
//
// Each sign of life (a renewed Lease, a new heartbeat in the status) moves the deadline of a node by the local
// clock, on a standby too. After the deadline the Lease and the node are read live before the status is
// written:
//
//	deadline ─▶ API server reachable? ─▶ live Lease ─▶ live node ─▶ status ─▶ zone ─▶ pods ─▶ taints
//
// An outage of the API server makes no live node Unknown (apiHealth). Zones limit the rate of NoExecute taints
// (zones). Zones depend on all nodes, so a term adds no NoExecute taint before the node cache was compared
// with the API server (confirmation).
//
// Limits: a network partition between nodes and API server looks like dead nodes. While only writes fail and
// no Lease is renewed, one node per grace period becomes Unknown to find out whether writes work again.
//
// Differences from kube-controller-manager v1.37: no pass over all nodes, each node has its own deadline. An
// outage freezes zones. Taints keep timeAdded over restarts. A renewTime that was set back counts as a sign of
// life. Rejected writes are retried with back-off.
package node
