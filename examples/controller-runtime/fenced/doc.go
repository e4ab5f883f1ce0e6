// Package fenced runs a controller-runtime manager under the elector and the fence of package leadership, instead of
// controller-runtime's election. An operator changes one call: [Run] builds the manager, passes it to the operator's
// setup, and starts it.
//
// Three parts do that:
//
//   - transport.go: the manager is built from a rest.Config with the fence, so every client made from it writes only
//     while the lease is held. Caches, events and reviews do not pass the fence.
//   - lock.go: the manager uses a resource lock in memory. The lock is held once the elector has won, and never before.
//   - run.go: a manager lives for one term of the elector. When the term ends, the manager stops; then the lease is
//     released.
package fenced
