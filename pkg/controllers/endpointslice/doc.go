// Package endpointslice is the endpointslice-controller: it keeps the EndpointSlices of every Service with a
// selector in line with the selected pods. The library k8s.io/endpointslice computes the slices.
//
//   - A pod becomes unready: podUpdated finds the Services by an index, reconcile updates the slices of the pod.
//   - A slice is deleted by hand: sliceGone adds the Service after a second, reconcile fills another or a new slice.
//   - The process is killed between two writes: the next leader syncs every Service, and decides writes on live
//     reads until its caches have reached the controller.Baseline. Nodes always come from the cache: pods of a node
//     that it lacks are left out.
//
// Invariant: a Service never gets a second set of slices. A sync waits for up to 30 s until the cache shows own
// writes, then reads live. After a write with unknown outcome, the next sync reads live, and
// repeats a create under the same name. For late writes of a former leader see leadership.Fence.
//
// Differences from kube-controller-manager v1.37: a failing Service is retried without a limit, and the syncs of a
// Service with n pods are at least min(n, 100) milliseconds apart.
package endpointslice
