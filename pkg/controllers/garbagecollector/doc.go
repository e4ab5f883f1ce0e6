// Package garbagecollector deletes objects whose owners are absent, and completes foreground and orphan deletions.
//
// Watches of all types feed a graph of objects and owner references. A change adds the keys of dependents and
// terminating owners to two queues.
//
//   - reconcileObject reads owners live that may be absent, classifies them, and sends one DELETE or patch.
//   - reconcileOwner waits for blocking dependents, or sweeps all types for orphans, and removes the finalizer.
//
// Invariants:
//
//   - The graph selects candidates. Absence takes a proof of the table at classifyOwner.
//   - A DELETE carries the UID and the resourceVersion of the decision. A patch tests UID and content.
//   - An owner that leaves orphans goes after a sweep without dependents. An unlisted type blocks the owner.
//   - A type without responses backs off and delays no other type.
//
// kube-controller-manager v1.37 accepts any 404, orphans only dependents in its graph, and keeps cycles of waiting
// owners.
package garbagecollector
