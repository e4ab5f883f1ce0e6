package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podstatus"
)

type podKey struct {
	cache.ObjectName
	bound bool // the pod is new on its node
}

// podMarker sets the pods of silent nodes to not Ready. Pods have a queue of their own, so nodes do not wait
// for pods.
type podMarker struct {
	client   kubernetes.Interface
	nodes    *caches.Nodes
	pods     *caches.Pods
	recorder record.EventRecorder
	clock    clock.PassiveClock
	api      *apiHealth
	loop     *controller.Loop[podKey]

	lock sync.Mutex
	down map[string]*downtime // by node name, of one term
}

// start starts the workers of a term.
func (p *podMarker) start(ctx context.Context, running *sync.WaitGroup) {
	p.down = map[string]*downtime{}
	p.loop.Start(ctx, running, nil)
}

// enqueueBound queues a Ready pod that is new on its node. Other changes of pods are the decision of the kubelet.
func (p *podMarker) enqueueBound(before, pod *caches.Pod) {
	if isNewOnNode(before, pod) && needsMark(pod) {
		p.loop.Add(podKey{cache.MetaObjectToName(pod), true})
	}
}

// isNewOnNode reports whether a pod is new on its node since before, which is nil or the last pod of the same name.
func isNewOnNode(before, pod *caches.Pod) bool {
	return pod.NodeName != "" && (before == nil || pod.NodeName != before.NodeName || pod.UID != before.UID)
}

// enqueuePodsOf queues the pods of a node that has become Unknown.
func (p *podMarker) enqueuePodsOf(node *corev1.Node, confirmed bool) {
	if p.observeNode(node, confirmed) {
		for _, pod := range p.pods.OnNode(node.Name) {
			p.loop.Add(podKey{ObjectName: cache.MetaObjectToName(pod)})
		}
	}
}

// reconcile sets a pod of a silent node to not Ready.
func (p *podMarker) reconcile(ctx context.Context, key podKey) (controller.Result, error) {
	pod, ok := p.pods.Get(key.ObjectName)
	if !ok || !needsMark(pod) {
		return controller.Result{}, nil
	}
	node, ok := p.nodes.Get(cache.ObjectName{Name: pod.NodeName})
	if !ok || !p.mustMark(pod, node, key.bound) {
		return controller.Result{}, nil
	}
	err := p.setNotReady(ctx, pod, p.clock.Now())
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("set pod not ready: %w", err)
	}
	p.api.observeWrite(nil)
	klog.FromContext(ctx).V(2).Info("Set pod of silent node to not ready", "node", pod.NodeName)
	p.recorder.Event(pod.Reference(), corev1.EventTypeWarning, eventNotReady, "Node is not ready")
	return controller.Result{}, nil
}

// needsMark reports whether a pod has a node and is Ready or Unknown.
func needsMark(pod *caches.Pod) bool {
	return pod.NodeName != "" && pod.Ready.Status != "" && pod.Ready.Status != corev1.ConditionFalse
}

func (p *podMarker) setNotReady(ctx context.Context, pod *caches.Pod, now time.Time) error {
	patch, err := podstatus.Change{
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Condition: &corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)},
	}.Patch()
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// downtime is a period in which a node is not Ready.
type downtime struct {
	node     types.UID
	unknown  bool // false if the kubelet reports not Ready, or has never posted
	since    time.Time
	followed bool // the pods of the node were queued
}

// downtimeOf returns the downtime of a node, nil if the node is Ready or has no Ready condition.
func downtimeOf(node *corev1.Node) *downtime {
	ready := conditionOf(node, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return nil
	}
	return &downtime{
		node: node.UID, since: ready.LastTransitionTime.Time,
		unknown: ready.Status == corev1.ConditionUnknown && ready.Reason != reasonNeverUpdated,
	}
}

// observeNode records the state of a node. It returns whether the pods of the node must be queued, once per
// downtime. A node that was Unknown when the term began may have recovered, so the node cache must be
// confirmed first.
func (p *podMarker) observeNode(node *corev1.Node, confirmed bool) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	d, old := downtimeOf(node), p.down[node.Name]
	if d == nil {
		delete(p.down, node.Name)
		return false
	}
	d.followed = old != nil && old.followed && old.node == d.node && old.unknown == d.unknown && old.since.Equal(d.since)
	follow := !d.followed && d.unknown && confirmed
	d.followed = d.followed || follow
	p.down[node.Name] = d
	return follow
}

// forget removes a deleted node.
func (p *podMarker) forget(node string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.down, node)
}

// mustMark reports whether a pod of a node must become not Ready. If the kubelet reports not Ready or has
// never posted, only a new pod must. A pod that became Ready after its node became Unknown shows that the
// kubelet is back.
func (p *podMarker) mustMark(pod *caches.Pod, node *corev1.Node, bound bool) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	d := p.down[node.Name]
	return d != nil && d.node == node.UID && (bound || d.unknown && pod.Ready.Since.Time.Before(d.since))
}
