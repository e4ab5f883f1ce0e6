// Package node is the node-lifecycle-controller: it decides which nodes are alive, says so in their conditions, taints and
// labels, and in the readiness of their pods. Who leaves a tainted node, and when, is package tainteviction's matter.
//
// # What it writes
//
//   - nodes/status: Ready, MemoryPressure, DiskPressure and PIDPressure to Unknown, of a node that has been silent for longer than
//     its grace period. Nothing else, and never Ready=True: that is the kubelet's to say.
//   - nodes: the NoSchedule taints that follow conditions, the NoExecute taints not-ready and unreachable, and two old labels.
//   - pods/status: Ready=False of the pods of a node that is Unknown.
//   - events: RegisteredNode, RemovingNode and NodeNotReady.
//
// Every write carries the resource version it was decided on. Conditions are written from a live read, because cached nodes are
// trimmed; taints and pods as patches.
//
// # How it decides
//
// A node's health is a deadline: each sign of life (a renewed Lease, a new heartbeat in the status) moves it, by our clock alone.
// Handlers note signs of life in a fixed time and on a standby too; a key is queued only when something else changed, and once per
// grace period. When a deadline passes, the node is judged by itself; while workers are short, nodes of
// which something else is to be done go before it for up to a minute. reconcile.go tells the whole story:
//
//	deadline ─▶ may silence be trusted? ─▶ live Lease ─▶ live node ─▶ status ─▶ zone ─▶ pods (their own queue) ─▶ taints
//
// What decides is pure: health.go, credit.go, taints.go and zone.go see values and a clock reading. State is in few places, to be read in
// this order:
//
//   - healthMap: each node's signs of life. Kept from term to term, and on a standby.
//   - silence: whether the silence of nodes may be trusted. Its visibility (would signs of life reach us?) is kept as well; the
//     lists of its leaseReader (what do Leases say now?) are of one term.
//   - confirmation: whether the node cache has been compared with the API server in this term.
//   - zones: the nodes of each zone, its state, and who waits for a taint. Of one term.
//   - nodeWriter: the versions that our writes have left and the cache may not show yet. Kept.
//   - podMarker: which pods have been marked. Of one term.
//   - announcer: which nodes have been announced by an event. Kept.
//
// # What it promises
//
//   - No node is condemned because we are blind. A verdict needs a live read of the Lease that shows nothing newer. While requests
//     fail, while the Lease cache is behind what a live read showed, or before we know how long we stood still, there
//     are no verdicts, no NoExecute taints and no changes of zones, and nothing is forgotten. After a time of blindness every node
//     has a whole grace period again. The blind time itself is free; what is given on top is limited to three grace periods until
//     the node's next sign of life. Whoever has been given them is judged by the live read alone.
//   - Slow is not blind. A piece of evidence, of one node or of all, may take half a minute, and the write of a verdict as long as the API server
//     lets it. What has to come in time is the probe that is sent when no Lease has been renewed for long. Failed requests for objects say nothing about the API server while
//     Leases are renewed: it takes a failed probe, or a long quiet.
//   - Each step follows from the API alone. A crash after the status and before the last pod leaves an Unknown node, and the
//     pods of Unknown nodes are queued when a term starts.
//   - A pod is marked once per time that its node is Unknown, so a kubelet that comes back is not contradicted.
//   - Zones are counted over all nodes, so one live read of one node would not make a stale node cache harmless. A term therefore
//     starts with a comparison of the node cache with the API server; until they agree, no NoExecute taint is added, none
//     removed because of a zone, and no pod marked because its node was Unknown before.
//
// # What it cannot do
//
// A network that cuts nodes off from the API server but not us looks like the death of these nodes; only the rates of zones stand
// between it and evictions. A node that dies during an outage is found up to a grace period after it. While writes fail
// and nobody renews, one verdict in a grace period is written all the same, to see whether writes are taken again: it may be on a node that lives. A change of a pod's status queues
// nothing, so a pod whose last Ready=True reaches the cache more than a grace period late, after its node was found dead, stays Ready until
// the next term.
//
// # Where it differs from kube-controller-manager v1.37
//
//   - There is no pass over all nodes. A node is judged when its own time has come, at least a monitor period after it was judged last.
//   - A node belongs to its UID: one made again under an old name starts afresh.
//   - Taints keep their TimeAdded over restarts, and a swap between not-ready and unreachable carries it over.
//   - A Lease is compared by renewTime; writes to it that renew nothing do not keep a node alive. A time that has gone back, seen by a live
//     read, does: that kubelet's clock was ahead and has been set. Upstream takes such a node for silent until the old time is reached.
//   - A suspension freezes zones; upstream leaves skipped nodes out of the count.
//   - While every zone has failed, no node may have one of our NoExecute taints, at any time, whoever wrote it. Upstream removes them
//     once.
//   - A token for a taint is spent only on a node that gets it. Nobody is tainted while nodes that are late (half their grace is over, and
//     one and a half of the intervals in which they renew) would, if silent, change the state of the zone; but not for longer than a
//     grace period.
//   - The rate of a zone follows its present size, also inside one state.
//   - Pods are marked when their node goes from False to Unknown too, and by a queue of their own; the event NodeNotReady is sent then as well.
//   - A pod event is sent for a pod that was marked, not for one that could not be.
//   - Errors and conflicts are retried with back-off. Upstream repeats a refused patch up to five times in place.
//   - Outside a term the gauges show no zones, so that two managers do not count twice.
package node
