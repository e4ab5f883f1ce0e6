// Package endpointslice is the endpointslice-controller: it keeps the EndpointSlices of every Service with a
// selector equal to the addresses of the selected pods.
//
//   - controller.go maps events of Services, pods, slices and nodes to Services.
//   - reconcile.go syncs one Service: read, wait, plan, plan again on a live read, send.
//   - plan.go holds the state of a term, and lets the library k8s.io/endpointslice compute the writes.
//   - cache.go defines the cached objects and an index of selectors.
//
// Invariant: a Service never gets a second set of slices. A sync waits for up to 30 s until the cache shows the
// slices that this process wrote, then reads live. Writes planned on a possibly stale cache are planned again on a
// live read. A create with unknown outcome is repeated under the same name. For late writes of a former leader see
// leadership.Fence.
//
// Differences from kube-controller-manager v1.37: a failing Service is retried without a limit; an index finds the
// Services of a pod; the metric of changes counts planned writes: failed writes count, and repeated plans count twice.
package endpointslice
