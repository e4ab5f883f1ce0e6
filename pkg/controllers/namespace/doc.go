// Package namespace finishes namespaces that somebody deleted: it deletes their content, says what holds them up, and
// removes the finalizer `kubernetes`, with which the namespace goes.
//
// # What it owns and writes
//
// Of a Namespace with a deletionTimestamp: the deletion conditions, the phase (old API servers leave it to us), and
// the token `kubernetes` in spec.finalizers. Other finalizers, in spec or in metadata, are their owners' business. Of the
// content: DELETE, nothing else. Namespaces without a deletionTimestamp are never written, nor is anything in them.
//
// # Invariants
//
//   - Finalize comes only after one pass, begun after the grace was over and working from a complete discovery, has seen
//     every type empty in a consistent list. All lists of a pass are sent within 30 s.
//   - No request that deletes anything but pods is sent before a pod list, begun after the grace, was answered and empty.
//     An error keeps that gate shut: NetworkPolicies and Secrets outlive the pods they restrain or serve.
//   - Every sync begins with a live read of the namespace. That is also the rule that the first write of a term is
//     verified: nothing is ever decided from a cache, so a warm standby with a late one decides as well as anybody.
//   - All that is remembered between syncs saves requests and paces them. A process killed after any request and started
//     again does the same work again and arrives at the same end.
//
// # The grace
//
// A create that was admitted just before the deletion can reach etcd after it, and another API server may admit one
// because its own watch is late. Both are why there is a grace. It stands at the gates, not at the start: pods are deleted
// at once; other types and finalize wait for it. It begins when this process first saw the deletion, so it runs once more
// after a restart unless the deletion is long past; a standby sees the same watch and keeps its own observations.
//
// A grace of zero means 100 ms and is right for exactly one API server: that server reads the namespace live for 30 s
// after it was deleted, so only creates in flight are left to wait for. The pods are looked at when the deletion is seen
// and everything is looked at again when the time is over; what an earlier look at the other types could prove, the
// later one proves too, so they are listed once, and an empty namespace costs 38 requests.
//
// # Where it differs from kube-controller-manager on purpose
//
// Types after the pods are handled in parallel; an empty one costs one list, a large one is walked in pages; events,
// served by two groups, are handled once. Discovery is shared by all namespaces whose deletion was seen before its request
// was sent. Waiting, be it for pods, finalizers or a broken APIService, is not an error: watches trigger the next look
// and a back-off stands behind them. Looks that watches trigger are soon a second apart, so objects that somebody
// makes again and again cost little, and a namespace for which nothing has moved for long is looked at every two minutes.
// An object that the server refuses to delete holds up no other: deletecollection ends at the first, so the others are then
// deleted one by one. An API that takes requests and does not answer is waited for by one namespace at a time. The
// conditions tell of pods that remain. One condition more, an Event in the namespace `default` and metrics name what blocks.
package namespace
