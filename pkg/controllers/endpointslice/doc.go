// Package endpointslice is the endpointslice-controller: it keeps the EndpointSlices of every Service with a
// selector equal to the selected pods. The library k8s.io/endpointslice computes the slices.
//
//   - A pod becomes unready: podUpdated finds the Services by an index, reconcile updates one slice of each.
//   - A slice is deleted by hand: sliceDeleted adds the Service after a second, reconcile creates a slice.
//   - The process is killed between two writes: the next leader syncs every Service, and decides writes on live
//     reads until its caches have reached the baseline of the term.
//
// Invariant: a Service never gets a second set of slices. A sync waits for up to 30 s until the cache shows own
// writes, then reads live. After a write with unknown outcome, the next sync reads live. A create with
// unknown outcome is repeated under the same name. For late writes of a former leader see leadership.Fence.
//
// Differences from kube-controller-manager v1.37: a failing Service is retried without a limit, and an index finds
// the Services of a pod.
package endpointslice
