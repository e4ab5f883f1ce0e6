// Package controller is the framework of every controller.
//
// A package declares its controller in a [Registration]: name, flags, feature gates, permissions and a
// constructor. The manager passes the dependencies in a [Base].
//
// A [Loop] calls a [Reconcile] function for the keys of a queue: with workers, retries with back-off, shares
// for namespaces, and containment of panics. Only the loop calls the queue; see [Result]. A Loop outlives
// terms, its queue does not: outside of Loop.Run, Loop.Add drops keys, so event handlers stay registered on a
// standby.
//
// A sync that runs longer than LoopConfig.SlowAfter is slow and gives its worker to another key. A sync without
// a request or a response for two minutes is stuck; see [Loop.Healthy]. At the end of a term running syncs may
// finish within LoopConfig.Drain; long ones check [Draining]. The fence cancels requests after a lost lease.
//
// [KeyStates] holds state per key, [Metrics] declares metrics.
//
// # What a sync waits for
//
// Caches lag behind writes. [Loader.LoadConsistent] plans writes only on objects that show all writes of this
// process and of earlier leaders:
//
//   - a [ConsistencyBarrier] has the versions that the writes for a key returned, and the last live list, because
//     no version shows a deletion,
//   - a [Baseline] has the versions at the start of the term,
//   - a controller adds expectations of its own: creates and deletes with unknown outcomes, or still without events,
//   - in endpointslice, the tracker of the library k8s.io/endpointslice does the same for slices.
//
// A decision without writes may lack writes of earlier leaders.
//
// # Which errors are no failures
//
// A Loop logs no error for these, and they take no token unless the key had failed before:
//
//   - context.Canceled: the term ends ([ErrDraining], leadership.FencedError), or a wait for a slot ended (errBusy of
//     the garbage collector). Controllers also send no event and count no failure.
//   - conflicts, up to eight without a success, cancelled syncs included. They have a back-off of their own.
//   - [ErrOutdated], for example a [NotReadyError]: the key is requeued after [ConsistencyRecheck].
//
// Controllers return no error
//
//   - if the object of a delete is gone (outcome.IsNotFound), except in endpointslice,
//   - for writes with their own back-off: rejections (errRejected of the garbage collector, of package ownership), and
//     creates in a terminating namespace (outcome.Terminating),
//   - in deployment, for conflicts of a status: the event of the change, or a recheck, starts the next sync,
//   - in replicaset, if the time of the sync is up (writelimit.ErrCut): the key is requeued at once,
//   - in endpointslice, if a node is missing: its event starts the next sync,
//   - in namespace, for types whose API does not respond (errSkipped): a condition shows them.
//
// # What limits requests
//
//   - The queue of a Loop gives tokens to keys that failed.
//   - A Loop shares its slow syncs among groups, so a slow namespace leaves workers to others.
//   - Package writelimit bounds the writes in flight of a controller whose syncs send many at once.
//   - The garbage collector bounds the reads in flight of each type, because one type may hang.
package controller
