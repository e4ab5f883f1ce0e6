// Package fenced runs a controller-runtime manager under the elector and the fence of package leadership, in place of the election that
// controller-runtime has. An operator changes one call: [Run] builds the manager, hands it to the operator's own setup, and starts it.
//
// Three parts do that:
//
//   - transport.go: the manager is built from a rest.Config with the fence in it, so every client that is made from it writes only while the
//     lease is held. Caches, events and reviews do not pass the fence.
//   - lock.go: the manager asks a resource lock that answers from memory. It says "yours" once the elector has won, and never before.
//   - run.go: the elector's term is the manager's life. When the term ends, the manager stops; when it has stopped, the lease is released.
package fenced
