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
	share       *shared
	inNamespace *tally
	onNode      *tally
}

// tally counts objects by a value. It follows the events of handlers and runs before all other handlers.
// Counting with an index of the store would copy the index.
type tally struct {
	lock   sync.Mutex
	counts map[string]int // no zeros
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) countOf(value string) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.counts[value]
}

// moveCount counts an object under a new instead of an old value. Empty values are not counted.
func (t *tally) moveCount(old, new string) {
	if old == new {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if new != "" {
		t.counts[new]++
	}
	if old == "" {
		return
	}
	if t.counts[old]--; t.counts[old] <= 0 {
		delete(t.counts, old)
	}
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
	pods := &Pods{owned: owned[*Pod]{store}, share: share, inNamespace: newTally(), onNode: newTally()}
	if err := pods.Handle(Handler[*Pod]{ // before all other handlers
		Add:    func(pod *Pod) { pods.countPod("", pod.Namespace, "", pod.NodeName) },
		Update: func(old, pod *Pod) { pods.countPod(old.Namespace, pod.Namespace, old.NodeName, pod.NodeName) },
		Delete: func(pod *Pod) { pods.countPod(pod.Namespace, "", pod.NodeName, "") },
	}); err != nil {
		return nil, err
	}
	c.pods = pods
	return pods, nil
}

func (p *Pods) countPod(oldNamespace, newNamespace, oldNode, newNode string) {
	p.inNamespace.moveCount(oldNamespace, newNamespace)
	p.onNode.moveCount(oldNode, newNode)
}

func nodeIndex(obj any) ([]string, error) {
	if name := obj.(*Pod).NodeName; name != "" {
		return []string{name}, nil
	}
	return nil, nil
}

// OnNode returns the pods that are bound to a node.
func (p *Pods) OnNode(node string) []*Pod { return p.ByIndex(podsByNode, node) }

// CountOnNode returns the number of pods bound to a node, in constant time. It follows the events of
// handlers: it is zero when handlers receive the deletion of the last pod.
func (p *Pods) CountOnNode(node string) int { return p.onNode.countOf(node) }

// CountInNamespace is like CountOnNode for the pods of a namespace.
func (p *Pods) CountInNamespace(namespace string) int { return p.inNamespace.countOf(namespace) }

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
