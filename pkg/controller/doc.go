// Package controller is what every controller is built on: how the manager knows it ([Registration], with its flags, gates and rights), what it
// is given ([Base]), and the one loop that it runs its keys through ([Loop]): a queue without duplicates, a number of workers,
// back-off for keys that failed, and containment of keys that panic. All failing keys of a loop share two token buckets, for their first retries and for
// later ones. When a failing key succeeds, the next one needs no token: recovery is as fast as the requests are.
//
// Slow is not stuck. A sync that waits, as a rule for the API server, gives its worker to another key, and keys of one slow namespace do not
// hold up those of others ([Loop.GroupBy]). The loop is healthy as long as every sync sends requests or gets answers.
//
// A Loop outlives terms, its queue does not. Outside [Loop.Run] there is no queue and [Loop.Add] drops its key, so
// event handlers may stay registered for the life of the process: a standby's handlers cost nothing and leave nothing
// behind. A term starts by creating the queue first and enqueuing every key second, so an event that falls between the two
// is queued twice at worst and lost never.
//
// Stopping is gentle here and hard elsewhere. When the context of Run ends, workers take no more keys, and the syncs that
// are running keep a live context until LoopConfig.Drain has passed; long ones ask [Draining] and stop half-way. Whoever must
// end requests at once, because the lease is gone, does so at the transport.
//
// A reconcile function answers with return values; only the loop touches the queue. See [Result] for what the answers mean.
//
// A controller that creates objects, or that must not act twice, needs to know what its caches may not show yet. [ConsistencyBarrier] records what the
// controller wrote for a key, [Baseline] the versions at the start of the term, and [Creates] the names of creates with unknown outcome.
// [Loader.LoadConsistent] is the common head of their reconciles, and [KeyStates] holds the state of each key.
// [Metrics] creates a metric in one line and registers it.
package controller
