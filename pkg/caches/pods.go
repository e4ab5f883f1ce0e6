package caches

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Pods is the cache of pods.
type Pods struct {
	Store[*Pod]
	share *shared
}

// Index names and the values a pod has in them.
const (
	podsByController = "controller" // UID of the controlling owner, or orphan/<namespace>
	podsByNode       = "node"       // name of the node the pod is bound to; unbound pods are absent
)

// Pods returns the cache of pods and puts it under watch.
func (c *Caches) Pods() (*Pods, error) {
	if c.pods != nil {
		return c.pods, nil
	}
	share := newShared()
	trim := func(obj any) (any, error) {
		if pod, ok := obj.(*corev1.Pod); ok {
			return trimPod(share, pod), nil
		}
		return obj, nil
	}
	store, err := newStore[*Pod](c, corev1.SchemeGroupVersion.WithResource("pods"), c.factory.Core().V1().Pods().Informer(), trim,
		cache.Indexers{podsByController: controllerIndex, podsByNode: nodeIndex})
	if err != nil {
		return nil, err
	}
	c.pods = &Pods{Store: store, share: share}
	return c.pods, nil
}

func controllerIndex(obj any) ([]string, error) {
	p := obj.(*Pod)
	if uid := p.ControllerUID(); uid != "" {
		return []string{string(uid)}, nil
	}
	return []string{"orphan/" + p.Namespace}, nil
}

func nodeIndex(obj any) ([]string, error) {
	if name := obj.(*Pod).NodeName; name != "" {
		return []string{name}, nil
	}
	return nil, nil
}

// ControlledBy returns the pods whose controlling owner has that UID.
func (p *Pods) ControlledBy(uid types.UID) []*Pod { return p.byIndex(podsByController, string(uid)) }

// Orphans returns the pods of a namespace that nobody controls.
func (p *Pods) Orphans(namespace string) []*Pod {
	return p.byIndex(podsByController, "orphan/"+namespace)
}

// OnNode returns the pods that are bound to a node.
func (p *Pods) OnNode(node string) []*Pod { return p.byIndex(podsByNode, node) }

// InNamespace returns the pods of a namespace.
func (p *Pods) InNamespace(namespace string) []*Pod {
	return p.byIndex(cache.NamespaceIndex, namespace)
}

// BoundNodes returns the names of the nodes that have at least one pod bound to them, whether or not such nodes exist.
func (p *Pods) BoundNodes() []string {
	return p.informer.GetIndexer().ListIndexFuncValues(podsByNode)
}

// Trim returns what the cache would hold of a pod that came in an answer of the API server.
func (p *Pods) Trim(pod *corev1.Pod) *Pod { return trimPod(p.share, pod) }

// Read asks the API server for the pods of a namespace that match opts, as they are in etcd now, and returns them with the resource
// version of the answer. Any resource version in opts is ignored.
func (p *Pods) Read(ctx context.Context, client kubernetes.Interface, namespace string, opts metav1.ListOptions) ([]*Pod, string, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	list, err := client.CoreV1().Pods(namespace).List(ctx, opts)
	if err != nil {
		return nil, "", fmt.Errorf("list pods of %s: %w", namespace, err)
	}
	pods := make([]*Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = p.Trim(&list.Items[i])
		p.Expect(pods[i].ResourceVersion)
	}
	return pods, list.ResourceVersion, nil
}
