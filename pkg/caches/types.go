package caches

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// ReplicaSets is the cache of ReplicaSets. They have no managed fields. Of the pod template of those that ask for no pods there is
// nothing but the labels and, if Deployments are watched, a digest; see [KeptDigest].
type ReplicaSets struct{ owned[*appsv1.ReplicaSet] }

// ReplicaSets returns the cache of ReplicaSets and puts it under watch.
func (c *Caches) ReplicaSets() (*ReplicaSets, error) {
	trim := func(obj any) (any, error) {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			trimReplicaSet(rs, c.deployments)
		}
		return obj, nil
	}
	store, err := Watch[*appsv1.ReplicaSet](c, appsv1.SchemeGroupVersion.WithResource("replicasets"),
		Options{Trim: trim, Indexers: cache.Indexers{byController: controllerIndex},
			Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Apps().V1().ReplicaSets().Informer()
			}})
	return &ReplicaSets{owned[*appsv1.ReplicaSet]{store}}, err
}

// InNamespace returns the ReplicaSets of a namespace.
func (r *ReplicaSets) InNamespace(namespace string) []*appsv1.ReplicaSet {
	return r.byIndex(cache.NamespaceIndex, namespace)
}

// Latest is what [Pods.Latest] is for pods.
func (r *ReplicaSets) Latest(ctx context.Context, client kubernetes.Interface) (string, error) {
	return latest(ctx, "ReplicaSets", client.AppsV1().ReplicaSets(metav1.NamespaceAll).List)
}

// trimReplicaSet drops the template of those that ask for no pods: old revisions of Deployments, which are most ReplicaSets. It is needed once they
// want pods, and comes with the change that says so. A digest of it is kept if anybody has to know whose template it is.
func trimReplicaSet(rs *appsv1.ReplicaSet, digest bool) {
	rs.ManagedFields = nil
	if _, kept := KeptDigest(rs); kept {
		return // a streamed list is trimmed twice
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

// Deployments is the cache of Deployments. They have no managed fields, and are otherwise unchanged. Their templates must not even be marshalled: a
// quantity keeps its text from then on, and the hash of a template covers that.
type Deployments struct{ Store[*appsv1.Deployment] }

// Deployments returns the cache of Deployments and puts it under watch. ReplicaSets have digests of their templates from then on.
func (c *Caches) Deployments() (*Deployments, error) {
	store, err := Watch[*appsv1.Deployment](c, appsv1.SchemeGroupVersion.WithResource("deployments"), Options{Trim: trimDeployment,
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Apps().V1().Deployments().Informer()
		}})
	c.deployments = err == nil
	return &Deployments{store}, err
}

// InNamespace returns the Deployments of a namespace.
func (d *Deployments) InNamespace(namespace string) []*appsv1.Deployment {
	return d.byIndex(cache.NamespaceIndex, namespace)
}

// Latest is what [Pods.Latest] is for pods.
func (d *Deployments) Latest(ctx context.Context, client kubernetes.Interface) (string, error) {
	return latest(ctx, "Deployments", client.AppsV1().Deployments(metav1.NamespaceAll).List)
}

func trimDeployment(obj any) (any, error) {
	if d, ok := obj.(*appsv1.Deployment); ok {
		d.ManagedFields = nil
	}
	return obj, nil
}

// Nodes is the cache of nodes. They have no images, no volumes and no managed fields.
type Nodes struct{ Store[*corev1.Node] }

// Nodes returns the cache of nodes and puts it under watch.
func (c *Caches) Nodes() (*Nodes, error) {
	store, err := Watch[*corev1.Node](c, corev1.SchemeGroupVersion.WithResource("nodes"), Options{Trim: trimNode,
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Nodes().Informer()
		}})
	return &Nodes{store}, err
}

func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	node.ManagedFields, node.Annotations = nil, nil
	node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions}
	node.Labels = copyLabels(node.Labels)
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		c.Type, c.Status, c.Reason, c.Message = canonical(c.Type), canonical(c.Status), canonical(c.Reason), canonical(c.Message)
	}
	return node, nil
}

// Namespaces is the cache of namespaces, without annotations and managed fields.
type Namespaces struct{ Store[*corev1.Namespace] }

// Namespaces returns the cache of namespaces and puts it under watch.
func (c *Caches) Namespaces() (*Namespaces, error) {
	store, err := Watch[*corev1.Namespace](c, corev1.SchemeGroupVersion.WithResource("namespaces"), Options{Trim: trimNamespace,
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Namespaces().Informer()
		}})
	return &Namespaces{store}, err
}

// Terminating reports whether the cache shows that a namespace is being deleted. Of nil, where nobody knows, it is false.
func (n *Namespaces) Terminating(name string) bool {
	if n == nil {
		return false
	}
	ns, ok := n.Get(cache.NewObjectName("", name))
	return ok && ns.DeletionTimestamp != nil
}

func trimNamespace(obj any) (any, error) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		ns.ManagedFields, ns.Annotations = nil, nil
	}
	return obj, nil
}

// Leases is the cache of Leases. Those outside Config.LeaseNamespaces have no spec.
type Leases struct{ Store[*coordinationv1.Lease] }

// Leases returns the cache of Leases and puts it under watch: the one namespace of Config.LeaseNamespaces, or all if there are more, or the owners
// of Leases are wanted.
func (c *Caches) Leases() (*Leases, error) {
	keep, scope := c.cfg.LeaseNamespaces, metav1.NamespaceAll
	if len(keep) == 1 && !c.cfg.LeaseOwners {
		scope = keep[0]
	}
	trim := func(obj any) (any, error) {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			return trimLease(lease, keep, c.cfg.LeaseOwners), nil
		}
		return obj, nil
	}
	informer := func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		if c.cfg.LeaseClient != nil {
			client = c.cfg.LeaseClient
		}
		return coordinationinformers.NewLeaseInformerWithOptions(client, scope, internalinterfaces.InformerOptions{ResyncPeriod: resync, InformerName: c.name})
	}
	store, err := Watch[*coordinationv1.Lease](c, coordinationv1.SchemeGroupVersion.WithResource("leases"),
		Options{Namespace: scope, Trim: trim, Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.InformerFor(&coordinationv1.Lease{}, informer)
		}})
	return &Leases{store}, err
}

// trimLease runs for every renewal of every node, so nothing is looked up or shared that the next renewal brings anew.
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
