// Package freshness connects informers with the API server and finds caches that do not follow the API
// server.
//
//   - [Transport] is the HTTP transport of informers. Watches survive an API server that is away, streaming
//     lists that stall are replaced by plain lists, and plain lists come in pages. Transport records the
//     last activity of each type and reopens silent watches.
//   - [Monitor] compares the version of each cache with consistent lists and with own writes. The watch of
//     a cache that is behind for too long is reopened. If the cache still differs from a list, the leader
//     steps down. The process competes again when its caches are current, or after a cool-down. After a
//     restore of etcd the process ends.
//
// Each type has one state: current, behind, reopened or stale. The table is in state.go. Lag alone is never
// staleness.
//
// [WatchedCache.Confirm] checks one cache once, before a decision that depends on the whole cache.
package freshness
