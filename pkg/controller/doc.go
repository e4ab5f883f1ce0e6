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
// Caches lag behind writes. [Loader.LoadConsistent] plans writes only on objects that show all writes of this
// process and of earlier leaders. A decision without writes may lack writes of earlier leaders. [KeyStates]
// holds state per key, [Metrics] declares metrics.
package controller
