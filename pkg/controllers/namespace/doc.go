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
//     every type empty in a consistent list or, if that showed objects and they were deleted, in one as new as that. All lists of a pass are
//     sent within 30 s, except those sent a minute after the deletion was seen or later: they stay good, as no create takes longer.
//     A pass that takes longer than 30 s is worked off in several syncs.
//   - A type that discovery shows and whose list is answered with 404 is not empty but unknown, until a discovery sent after that does not
//     show it any more. One whose list is answered with 405, or that has none, is deleted unseen and named in what is told of the namespace.
//   - No request that deletes anything but pods is sent before a pod list, begun after the grace, was answered and empty.
//     An error keeps that gate shut: NetworkPolicies and Secrets outlive the pods they restrain or serve.
//   - Every sync begins with a live read of the namespace. It is read again before the first object other than a pod is deleted: somebody else may have finished
//     it meanwhile, and a new one may have its name. Finalize carries the version that was read. So the first write of a term is verified, too: nothing is ever decided from a cache, and a warm standby
//     with a late one decides as well as anybody.
//   - All that is remembered between syncs saves requests and paces them. A process killed after any request and started
//     again does the same work again and arrives at the same end.
//
// # The grace
//
// A create that was admitted just before the deletion can reach etcd after it, and another API server may admit one
// because its own watch is late. Both are why there is a grace. It stands at the gates, not at the start: pods are deleted
// at once; other types and finalize wait for it. It begins when this process first saw the deletion, by the monotonic clock. A standby sees
// the same watch and keeps its own observations. A deletion that was already there in the first list begins it once more, unless the
// deletionTimestamp is 30 s longer ago than the grace by the local clock; one that was watched gets all of it, whatever the clocks say.
//
// A grace of zero means 100 ms and is for exactly one API server: that server reads the namespace live for 30 s
// after it was deleted, so only creates in flight are left to wait for. That is no promise. A create that has passed this check waits next
// for admission webhooks, and when they take longer than the grace, its object outlives the namespace; with the default of 5 s, and in
// kube-controller-manager, it takes slower ones. So a grace below 1.5 s becomes 1.5 s where a webhook is asked about creates in the namespace,
// and everywhere once an object was seen that is younger than the deletion of its namespace. The pods are looked at when the deletion
// is seen and everything is looked at again when the time is over; what an earlier look at the other types could prove, the
// later one proves too, so they are listed once, and an empty namespace costs 40 requests, 38 with a longer grace.
//
// # What is slow
//
// An object may cost the server much: a conversion, a webhook that is asked about its deletion. A page that takes 10 s is given up, and the
// next one is a quarter as large and, to list it, may take twice as long, up to one object and a minute; pages that are answered at once grow
// again. What a cut deletecollection got through is done, so it is no error while there is a smaller page. Half of the
// workers, at most, wait for types that need more than 10 s, and a pass begins nothing new after 30 s: a slow namespace keeps one worker busy
// and no other namespace waiting. A group version that has answered neither of two namespaces, and nobody since, is waited for by one at a time.
//
// Handlers take constant time: pods are counted, not listed, when one of them goes.
//
// # Where it differs from kube-controller-manager on purpose
//
// Types after the pods are handled in parallel; an empty one costs one list, a large one is walked in pages; events,
// served by two groups, are handled once. Discovery is shared by all namespaces whose deletion was seen before its request
// was sent. Waiting, be it for pods, finalizers or a broken APIService, is not an error: watches trigger the next look
// and a back-off stands behind them. Looks that watches trigger are soon a second apart, so objects that somebody
// makes again and again cost little, and a namespace for which nothing has moved for long is looked at every two minutes.
// An object that the server refuses to delete holds up no other: deletecollection ends at the first, so the others are then
// deleted one by one. The conditions tell of pods that remain. One condition more, an Event in the namespace `default` and metrics name what blocks.
package namespace
