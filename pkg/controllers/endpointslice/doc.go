// Package endpointslice is the endpointslice-controller: it keeps the EndpointSlices of every Service with a
// selector equal to the addresses of the selected pods.
//
// The library k8s.io/endpointslice computes and writes the slices. This package decides when the library runs, and
// on which objects:
//
//   - controller.go maps events of Services, pods, slices and nodes to Services.
//   - reconcile.go syncs one Service.
//   - writes.go passes the writes of the library on.
//
// Invariant: a Service never gets a second set of slices. A sync waits until the cache shows the slices that
// this process wrote. A write that an older cache may have caused is withheld, and the sync is repeated on a
// live list. A create with unknown outcome is repeated under the same name.
//
// Differences from kube-controller-manager v1.37: a failing Service is retried without a limit; an index finds
// the Services of a pod.
package endpointslice
