// Package namespace deletes the content of terminating namespaces and finalizes the namespaces.
//
// Invariants:
//
//   - Finalize follows one pass that began after the grace period, worked from a complete discovery, and ended with an
//     empty list of every type that can be listed. A 404 for a discovered type is not an empty list, unless an
//     extension API server has no storage for the namespace two minutes after this process first saw the deletion.
//   - No DELETE except for pods is sent before a pod list, sent after the grace period, was empty.
//   - Every sync reads the namespace live, and compares its UID before deleting anything except pods.
//   - State between syncs only saves requests.
//
// The grace period covers creates that were admitted before the deletion, by any API server. The period begins
// when this process, also as a standby, first sees the deletion.
//
// Unlike kube-controller-manager, the controller deletes pods at once and other types in parallel, in pages.
// The condition NamespaceDeletionBlocked names the remaining objects.
package namespace
