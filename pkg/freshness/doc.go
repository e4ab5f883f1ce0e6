// Package freshness knows whether what the informers hold is what the API server has.
//
// Three parts, and nothing here knows caches or controllers, nor of leases more than that one of them is written often:
//
//   - [Line] is how informers reach the API server. It keeps reflectors from listing everything when they need not, and from doing so in one
//     piece: a watch is held while the API server is away or being replaced, a first streaming list that says nothing is ended, plain
//     lists come in pages.
//   - [Streams] notes when the last byte of each type came, over all streams and attempts, and reopens a watch that is asked for.
//   - [Monitor] finds out when a cache does not have what lists show, whatever its streams seem to do, has its watch reopened and, if that
//     does not help, says so: the leader then steps down and stays out of the election until its caches are current, or nobody else has taken the
//     lease. Data that were set back, as by a restore of etcd, end the process.
//
// [Watched.Confirm] answers the question once, for whoever is about to act on a whole cache.
//
// Each type has one state: current, behind, different, reopened or stale; staleness.go says what leads from one to the next. Lag alone is never staleness.
package freshness
