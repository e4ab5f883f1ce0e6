package caches

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Pods is the cache of pods.
type Pods struct {
	owned[*Pod]
	share *shared

	lock        sync.Mutex
	inNamespace map[string]int // pods by namespace, without zeros
}

// podsByNode is the index by node name. It does not contain unbound pods.
const podsByNode = "node"

// Pods requests and returns the cache of pods.
func (c *Caches) Pods() (*Pods, error) {
	if c.pods != nil {
		return c.pods, nil
	}
	share := newShared(c.cfg.Fields)
	trim := func(pod *corev1.Pod) any { return trimPod(share, pod) }
	store, err := Watch[*Pod](c, corev1.SchemeGroupVersion.WithResource("pods"),
		Options{Trim: Trim(trim), Indexers: cache.Indexers{byController: controllerIndex, podsByNode: nodeIndex},
			Informer: c.factory.Core().V1().Pods().Informer})
	if err != nil {
		return nil, err
	}
	pods := &Pods{owned: owned[*Pod]{store}, share: share, inNamespace: map[string]int{}}
	if err := pods.Handle(Handler[*Pod]{ // before all other handlers
		Add:    func(pod *Pod) { pods.count(pod.Namespace, 1) },
		Delete: func(pod *Pod) { pods.count(pod.Namespace, -1) },
	}); err != nil {
		return nil, err
	}
	c.pods = pods
	return pods, nil
}

func (p *Pods) count(namespace string, n int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.inNamespace[namespace] += n; p.inNamespace[namespace] <= 0 {
		delete(p.inNamespace, namespace)
	}
}

func nodeIndex(obj any) ([]string, error) {
	if name := obj.(*Pod).NodeName; name != "" {
		return []string{name}, nil
	}
	return nil, nil
}

// OnNode returns the pods that are bound to a node.
func (p *Pods) OnNode(node string) []*Pod { return p.ByIndex(podsByNode, node) }

// CountInNamespace returns the number of pods in a namespace, in constant time; an index would copy all pods. It
// follows the events of handlers: it is zero when handlers receive the deletion of the last pod.
func (p *Pods) CountInNamespace(namespace string) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.inNamespace[namespace]
}

// BoundNodes returns the names of all nodes that pods are bound to, including nodes that do not exist.
func (p *Pods) BoundNodes() []string {
	return p.informer.GetIndexer().ListIndexFuncValues(podsByNode)
}

// Trim returns a pod as stored in the cache.
func (p *Pods) Trim(pod *corev1.Pod) *Pod { return trimPod(p.share, pod) }

// readPage is the number of pods per page of Read: some megabytes when decoded, and the page size of
// client-go's pager.
const readPage = 500

// Read reads the pods of a namespace that match opts with a consistent list, and returns them with the
// resourceVersion of the list. All pages have that version, and each page is trimmed at once. Any
// resourceVersion, limit or continue token in opts is ignored.
func (p *Pods) Read(ctx context.Context, client kubernetes.Interface, namespace string, opts metav1.ListOptions) ([]*Pod, string, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	opts.Limit, opts.Continue = readPage, ""
	var pods []*Pod
	for {
		page, err := client.CoreV1().Pods(namespace).List(ctx, opts)
		if err != nil {
			return nil, "", fmt.Errorf("list pods of %s: %w", namespace, err)
		}
		for i := range page.Items {
			pod := p.Trim(&page.Items[i])
			p.Expect(pod.ResourceVersion)
			pods = append(pods, pod)
		}
		if page.Continue == "" {
			return pods, page.ResourceVersion, nil
		}
		opts.Continue = page.Continue
	}
}

// ReadByName reads a pod, or returns nil. It sends a list, because the roles of kube-controller-manager's
// controllers may list pods and not get pods.
func (p *Pods) ReadByName(ctx context.Context, client kubernetes.Interface, name cache.ObjectName) (*Pod, error) {
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()}
	pods, _, err := p.Read(ctx, client, name.Namespace, byName)
	i := slices.IndexFunc(pods, func(pod *Pod) bool { return pod.Name == name.Name })
	if i < 0 {
		return nil, err
	}
	return pods[i], nil
}
