package caches

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Trim returns a transform for objects of type T. Other objects were trimmed before: client-go passes the
// objects of a streaming list twice.
func Trim[T any](trim func(T) any) cache.TransformFunc {
	return func(obj any) (any, error) {
		if object, ok := obj.(T); ok {
			return trim(object), nil
		}
		return obj, nil
	}
}

// ReplicaSets is the cache of ReplicaSets, without managed fields. A ReplicaSet with zero replicas keeps only
// the labels of its pod template and, if Deployments are watched, a digest; see [KeptDigest].
type ReplicaSets struct{ owned[*appsv1.ReplicaSet] }

// ReplicaSets requests and returns the cache of ReplicaSets.
func (c *Caches) ReplicaSets() (*ReplicaSets, error) {
	trim := func(rs *appsv1.ReplicaSet) any { trimReplicaSet(rs, c.deployments); return rs }
	store, err := Watch[*appsv1.ReplicaSet](c, appsv1.SchemeGroupVersion.WithResource("replicasets"),
		Options{Trim: Trim(trim), Indexers: cache.Indexers{byController: controllerIndex},
			Informer: c.factory.Apps().V1().ReplicaSets().Informer})
	return &ReplicaSets{owned[*appsv1.ReplicaSet]{store}}, err
}

// trimReplicaSet drops the template of ReplicaSets with zero replicas. These are old revisions of
// Deployments, and most of all ReplicaSets. The event that raises the replicas brings the template back.
// Controllers that compare templates use the digest.
func trimReplicaSet(rs *appsv1.ReplicaSet, digest bool) {
	rs.ManagedFields = nil
	if _, kept := KeptDigest(rs); kept {
		return // trimmed before
	}
	if rs.Spec.Replicas != nil && *rs.Spec.Replicas == 0 {
		kept := metav1.ObjectMeta{Labels: rs.Spec.Template.Labels}
		if digest {
			kept.UID = types.UID(digestMark + TemplateDigest(&rs.Spec.Template))
		}
		rs.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: kept}
	}
	shareLabels(rs)
}

// shareLabels keeps one copy of labels that a ReplicaSet of a Deployment has three times.
func shareLabels(rs *appsv1.ReplicaSet) {
	if maps.Equal(rs.Labels, rs.Spec.Template.Labels) {
		rs.Spec.Template.Labels = rs.Labels
	}
	if s := rs.Spec.Selector; s != nil && maps.Equal(rs.Labels, s.MatchLabels) {
		s.MatchLabels = rs.Labels
	}
}

// Deployments is the cache of Deployments, without managed fields. Do not marshal their templates: a quantity
// then keeps its text, which changes the hash of the template.
type Deployments struct{ Store[*appsv1.Deployment] }

// Deployments requests and returns the cache of Deployments. ReplicaSets then keep digests of
// their templates.
func (c *Caches) Deployments() (*Deployments, error) {
	trim := func(d *appsv1.Deployment) any { d.ManagedFields = nil; return d }
	store, err := Watch[*appsv1.Deployment](c, appsv1.SchemeGroupVersion.WithResource("deployments"), Options{Trim: Trim(trim),
		Informer: c.factory.Apps().V1().Deployments().Informer})
	c.deployments = err == nil
	return &Deployments{store}, err
}

// Nodes is the cache of nodes. Their status holds the conditions and, if [NodeCPU] is requested, the
// allocatable CPU.
type Nodes struct{ Store[*corev1.Node] }

// Nodes requests and returns the cache of nodes.
func (c *Caches) Nodes() (*Nodes, error) {
	trim := func(node *corev1.Node) any { return trimNode(node, c.cfg.Fields) }
	store, err := Watch[*corev1.Node](c, corev1.SchemeGroupVersion.WithResource("nodes"), Options{Trim: Trim(trim),
		Informer: c.factory.Core().V1().Nodes().Informer})
	return &Nodes{store}, err
}

// Lister returns the cache in the form that libraries of Kubernetes read.
func (n *Nodes) Lister() corelisters.NodeLister {
	return corelisters.NewNodeLister(n.informer.GetIndexer())
}

func trimNode(node *corev1.Node, fields Fields) *corev1.Node {
	node.ManagedFields, node.Annotations = nil, nil
	status := corev1.NodeStatus{Conditions: node.Status.Conditions}
	if cpu, ok := node.Status.Allocatable[corev1.ResourceCPU]; ok && fields&NodeCPU != 0 {
		status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	node.Status = status
	node.Labels = copyLabels(node.Labels)
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		c.Type, c.Status, c.Reason, c.Message = uniqueString(c.Type), uniqueString(c.Status), uniqueString(c.Reason), uniqueString(c.Message)
	}
	return node
}

// Namespaces is the cache of namespaces, without annotations and managed fields.
type Namespaces struct{ Store[*corev1.Namespace] }

// Namespaces requests and returns the cache of namespaces.
func (c *Caches) Namespaces() (*Namespaces, error) {
	trim := func(ns *corev1.Namespace) any { ns.ManagedFields, ns.Annotations = nil, nil; return ns }
	store, err := Watch[*corev1.Namespace](c, corev1.SchemeGroupVersion.WithResource("namespaces"), Options{Trim: Trim(trim),
		Informer: c.factory.Core().V1().Namespaces().Informer})
	return &Namespaces{store}, err
}

// Terminating reports whether the cache shows that a namespace is being deleted.
func (n *Namespaces) Terminating(name string) bool {
	ns, ok := n.Get(cache.NewObjectName("", name))
	return ok && ns.DeletionTimestamp != nil
}

// Leases is the cache of Leases. Leases outside Config.LeaseNamespaces have no spec.
type Leases struct{ Store[*coordinationv1.Lease] }

// Leases requests and returns the cache of Leases: in the one namespace of
// Config.LeaseNamespaces, or in all namespaces if there are more, or if Config.LeaseOwners is set.
func (c *Caches) Leases() (*Leases, error) {
	keep, scope := c.cfg.LeaseNamespaces, metav1.NamespaceAll
	if len(keep) == 1 && !c.cfg.LeaseOwners {
		scope = keep[0]
	}
	trim := func(lease *coordinationv1.Lease) any { return trimLease(lease, keep, c.cfg.LeaseOwners) }
	informer := func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if c.cfg.LeaseClient != nil {
			client = c.cfg.LeaseClient
		}
		options := internalinterfaces.InformerOptions{ResyncPeriod: resync, InformerName: c.factory.InformerName()}
		return coordinationinformers.NewLeaseInformerWithOptions(client, scope, options)
	}
	store, err := Watch[*coordinationv1.Lease](c, coordinationv1.SchemeGroupVersion.WithResource("leases"),
		Options{Namespace: scope, Trim: Trim(trim), Informer: func() cache.SharedIndexInformer {
			return c.factory.InformerFor(&coordinationv1.Lease{}, informer)
		}})
	return &Leases{store}, err
}

// trimLease runs for every renewal of every node, so it shares nothing.
func trimLease(lease *coordinationv1.Lease, keep []string, owners bool) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: lease.Name, Namespace: lease.Namespace, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
	}}
	if slices.Contains(keep, lease.Namespace) {
		out.Spec = lease.Spec
	}
	if owners {
		out.OwnerReferences, out.Finalizers, out.DeletionTimestamp = lease.OwnerReferences, lease.Finalizers, lease.DeletionTimestamp
	}
	return out
}
