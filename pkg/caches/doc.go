// Package caches holds what the manager knows of the cluster: one shared informer factory, one LIST and WATCH stream per
// resource type, whatever number of controllers read it.
//
// A type has a cache if some controller asked for it before Start, and not otherwise. [Feeds] bring in the metadata of all other types, which may come and
// go, into a store of whoever wants them, and never a type that has a cache: its handlers are told instead ([Caches.Observe]). Informers start once and stop with the
// process; winning or losing the lease does not touch them.
//
// Objects are trimmed on their way in. ReplicaSets keep everything but their managed fields, and their template only while they ask for pods; of the
// others a digest is kept for whoever watches Deployments. Deployments lose their managed fields only.
// Nodes, Namespaces and Leases keep their API type and lose the fields nobody reads. Pods, of which there may be tens of thousands,
// are stored as [Pod], a type of our own about a third the size of corev1.Pod, and share equal label maps, owner
// references and tolerations. Nothing from a cache may be changed, and nothing trimmed may be written back: what is sent to the
// API server is a patch, or built from a live read.
//
// One stream carries the Leases of all namespaces, because an informer can be limited to one namespace only and two are needed: the
// nodes' and our own. The others are kept as a name and a version. Where the nodes' are not needed, only our own namespace is watched.
// That stream has a connection of its own, so that it can be read every 75 ms when many nodes renew, instead of at every renewal (see
// [freshness.Transport]).
//
// A cache can be late. [Store.Version] is how far its contents have come, and the Read functions ask the API server with no resource
// version, which it answers with what is in etcd at that moment.
package caches
