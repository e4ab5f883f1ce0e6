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

// podKey is a pod to look at.
type podKey struct {
	cache.ObjectName
	bound bool // because it was bound to its node just now
}

// podMarker sets the pods of a node that does not answer to not Ready: each once per downtime of its node, by a queue of their own, so that
// nodes do not wait for pods.
type podMarker struct {
	client     kubernetes.Interface
	nodes      *caches.Nodes
	pods       *caches.Pods
	recorder   record.EventRecorder
	clock      clock.PassiveClock
	visibility *visibility
	loop       *controller.Loop[podKey]

	marks *marks // of one term
}

// start starts a term, to be joined by in.
func (p *podMarker) start(ctx context.Context, in *sync.WaitGroup) {
	p.marks = newMarks()
	p.loop.Start(ctx, in, nil)
}

// bound queues a pod that has come to a node and says that it is ready. Other changes of pods are left alone: a pod that its kubelet has set Ready is not
// ours to set back.
func (p *podMarker) bound(before, pod *caches.Pod) {
	if hasCome(before, pod) && needsMark(pod) {
		p.loop.Add(podKey{cache.MetaObjectToName(pod), true})
	}
}

// hasCome reports whether a pod has come to a node since before, which is nil or what was last seen under its name: maybe another pod.
func hasCome(before, pod *caches.Pod) bool {
	return pod.NodeName != "" && (before == nil || pod.NodeName != before.NodeName || pod.UID != before.UID)
}

// follow takes in the state of a node, and queues its pods once it is Unknown. A node that was Unknown when the term began may be well
// again, so its pods wait until the node cache has been confirmed.
func (p *podMarker) follow(node *corev1.Node, confirmed bool) {
	d, isDown := downtimeOf(node)
	if !isDown {
		p.marks.end(node.Name)
		return
	}
	p.marks.begin(node.Name, d)
	if d.ready == corev1.ConditionUnknown && confirmed && p.marks.follow(node.Name) {
		for _, pod := range p.pods.OnNode(node.Name) {
			p.loop.Add(podKey{ObjectName: cache.MetaObjectToName(pod)})
		}
	}
}

// gone takes in that a node is gone.
func (p *podMarker) gone(node string) { p.marks.end(node) }

// reconcile sets a pod to not Ready if its node does not answer.
func (p *podMarker) reconcile(ctx context.Context, key podKey) (controller.Result, error) {
	pod, ok := p.pods.Get(key.ObjectName)
	if !ok || !needsMark(pod) {
		return controller.Result{}, nil
	}
	node, ok := p.nodes.Get(cache.ObjectName{Name: pod.NodeName})
	if !ok || !p.marks.due(node, pod.UID, key.bound) {
		return controller.Result{}, nil
	}
	err := p.mark(ctx, pod, p.clock.Now())
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("set pod not ready: %w", err)
	}
	p.visibility.wrote(p.clock.Now())
	p.marks.done(pod.NodeName, pod.UID)
	klog.FromContext(ctx).V(2).Info("Set pod not ready, its node does not answer", "node", pod.NodeName)
	p.recorder.Event(pod.Reference(), corev1.EventTypeWarning, eventNotReady, "Node is not ready")
	return controller.Result{}, nil
}

// needsMark reports whether a pod is on a node and says that it is ready, or that nobody knows.
func needsMark(pod *caches.Pod) bool {
	return pod.NodeName != "" && pod.Ready.Status != "" && pod.Ready.Status != corev1.ConditionFalse
}

// mark changes the status of the Ready condition and the time of the change, nothing else.
func (p *podMarker) mark(ctx context.Context, pod *caches.Pod, now time.Time) error {
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

// downtime is a time in which a node is not Ready.
type downtime struct {
	node  types.UID
	ready corev1.ConditionStatus // empty: never posted
	since time.Time
}

// downtimeOf returns the downtime a node is in, if it is in one.
func downtimeOf(node *corev1.Node) (downtime, bool) {
	ready := condition(node, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return downtime{}, false
	}
	d := downtime{node: node.UID, ready: ready.Status, since: ready.LastTransitionTime.Time}
	if ready.Reason == reasonNeverUpdated {
		d.ready = "" // nobody has ever said anything about its pods: only those that come now are ours to mark
	}
	return d, true
}

// marks remembers which nodes are not Ready, and which of their pods were marked: each once per downtime, so that a kubelet that
// comes back and says otherwise is not contradicted. It lives for one term.
type marks struct {
	lock  sync.Mutex
	nodes map[string]*marked
}

type marked struct {
	downtime
	followed bool // its pods were queued
	pods     map[types.UID]bool
}

func newMarks() *marks { return &marks{nodes: map[string]*marked{}} }

// begin notes a node's downtime, which may be the one it is in.
func (m *marks) begin(node string, d downtime) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if old := m.nodes[node]; old != nil && old.node == d.node && old.ready == d.ready && old.since.Equal(d.since) {
		return
	}
	m.nodes[node] = &marked{downtime: d, pods: map[types.UID]bool{}}
}

// follow reports whether the pods of a node are to be queued, which they are once per downtime.
func (m *marks) follow(node string) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	d := m.nodes[node]
	if d == nil || d.followed {
		return false
	}
	d.followed = true
	return true
}

// end notes that a node is well, or gone.
func (m *marks) end(node string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.nodes, node)
}

// due reports whether a pod of a node should be marked. If the kubelet itself says that its node is not ready, or has never said
// anything, only a pod that has just been bound is. A downtime of an earlier node of the name does not count: pods of the new node may be
// reconciled before the node is.
func (m *marks) due(node *corev1.Node, pod types.UID, bound bool) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	d := m.nodes[node.Name]
	return d != nil && d.node == node.UID && !d.pods[pod] && (bound || d.ready == corev1.ConditionUnknown)
}

func (m *marks) done(node string, pod types.UID) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if d := m.nodes[node]; d != nil {
		d.pods[pod] = true
	}
}
