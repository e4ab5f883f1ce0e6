// Package caches holds the objects that controllers read: one shared informer factory with one watch per type.
//
// A type has a cache if a controller requested it before Start. [Feeds] are the metadata watches of all other
// types. Informers run until the context of Start ends; a standby keeps its caches.
//
// Objects are trimmed before they are stored. Pods become [Pod], a third of the size of corev1.Pod, and share
// equal labels, owner references and tolerations. ReplicaSets with zero replicas lose their template. Never
// change a cached object. Of a trimmed object write only the status; otherwise send a patch, or build the
// object from a live read.
//
// One watch delivers the Leases: of all namespaces if the garbage collector runs or several namespaces are needed,
// because an informer has one namespace at most; see [Config.LeaseNamespaces].
//
// [Store.Version] is the version that a cache has reached. [Pods.Read], [Pods.ReadByName] and [LatestVersion] read
// from the API server.
package caches
