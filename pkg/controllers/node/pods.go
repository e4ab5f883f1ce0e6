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
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podstatus"
)

// podConflictRetry is how long the pod cache is given to show what somebody else wrote.
const podConflictRetry = 50 * time.Millisecond

// podKey is a pod to look at.
type podKey struct {
	cache.ObjectName
	bound bool // because it was bound to its node just now
}

// bound queues a pod that has come to a node. Other changes of pods are left alone: a pod that its kubelet has set Ready is not ours
// to set back.
func (c *Controller) bound(before, pod *caches.Pod) {
	if hasCome(before, pod) {
		c.podLoop.Add(podKey{cache.MetaObjectToName(pod), true})
	}
}

// hasCome reports whether a pod has come to a node since before, which is nil or what was last seen under its name: maybe another pod.
func hasCome(before, pod *caches.Pod) bool {
	return pod.NodeName != "" && (before == nil || pod.NodeName != before.NodeName || pod.UID != before.UID)
}

// follow queues the pods of a node that has become Unknown, also one that was so when the term began; but then the node may be well
// again, so the pods wait until the node cache has been confirmed.
func (c *Controller) follow(node *corev1.Node) {
	ready := condition(node, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		c.marks.end(node.Name)
		return
	}
	e := downtime{node: node.UID, ready: ready.Status, since: ready.LastTransitionTime.Time}
	if ready.Reason == reasonNeverUpdated {
		e.ready = "" // nobody has ever said anything about its pods: only those that come now are ours to mark
	}
	c.marks.begin(node.Name, e)
	if e.ready == corev1.ConditionUnknown && c.confirmed.Load() && c.marks.follow(node.Name) {
		for _, pod := range c.pods.OnNode(node.Name) {
			c.podLoop.Add(podKey{ObjectName: cache.MetaObjectToName(pod)})
		}
	}
}

// reconcilePod sets a pod to not Ready if its node does not answer. The pods of one node do not wait for those of another.
func (c *Controller) reconcilePod(ctx context.Context, key podKey) (controller.Result, error) {
	pod, ok := c.pods.Get(key.ObjectName)
	if !ok || !needsMark(pod) {
		return controller.Result{}, nil
	}
	node, ok := c.nodes.Get(cache.ObjectName{Name: pod.NodeName})
	if !ok || !c.marks.due(node, pod.UID, key.bound) {
		return controller.Result{}, nil
	}
	now := c.clock.Now()
	err := c.markPod(ctx, pod, now)
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case apierrors.IsConflict(err):
		return controller.Result{After: c.marks.conflict(pod.NodeName, pod.UID)}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("set pod not ready: %w", err)
	}
	c.visibility.wrote(writing("pod", key.String()), c.clock.Now())
	c.marks.done(pod.NodeName, pod.UID)
	c.metrics.podsMarked.Inc()
	klog.FromContext(ctx).V(2).Info("Set pod not ready, its node does not answer", "node", pod.NodeName)
	c.tellPodNotReady(pod)
	return controller.Result{}, nil
}

// needsMark reports whether a pod is on a node and says that it is ready, or that nobody knows.
func needsMark(pod *caches.Pod) bool {
	return pod.NodeName != "" && pod.Ready.Status != "" && pod.Ready.Status != corev1.ConditionFalse
}

// markPod changes the status of the Ready condition and the time of the change, nothing else.
func (c *Controller) markPod(ctx context.Context, pod *caches.Pod, now time.Time) error {
	patch, err := podstatus.Change{
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Condition: &corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)},
	}.Patch()
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// downtime is a time in which a node is not Ready.
type downtime struct {
	node  types.UID
	ready corev1.ConditionStatus // empty: never posted
	since time.Time
}

// marks remembers which nodes are not Ready, and which of their pods were marked: each once an downtime, so that a kubelet that
// comes back and says otherwise is not contradicted. It lives for one term.
type marks struct {
	lock  sync.Mutex
	nodes map[string]*marked
}

type marked struct {
	downtime
	followed  bool // its pods were queued
	pods      map[types.UID]bool
	conflicts map[types.UID]int
}

func newMarks() *marks { return &marks{nodes: map[string]*marked{}} }

// begin notes a node's downtime, which may be the one it is in.
func (m *marks) begin(node string, e downtime) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if old := m.nodes[node]; old != nil && old.node == e.node && old.ready == e.ready && old.since.Equal(e.since) {
		return
	}
	m.nodes[node] = &marked{downtime: e, pods: map[types.UID]bool{}, conflicts: map[types.UID]int{}}
}

// follow reports whether the pods of a node are to be queued, which they are once an downtime.
func (m *marks) follow(node string) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	e := m.nodes[node]
	if e == nil || e.followed {
		return false
	}
	e.followed = true
	return true
}

// end notes that a node is well, or gone.
func (m *marks) end(node string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.nodes, node)
}

// due reports whether a pod of a node should be marked. While the kubelet itself says that its node is not ready, or has never said
// anything, that is only so for a pod that has just been bound. What is known may be of an earlier node of the name: its end is
// noted by the loop of nodes, which the pods of the new one may be ahead of.
func (m *marks) due(node *corev1.Node, pod types.UID, bound bool) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	e := m.nodes[node.Name]
	return e != nil && e.node == node.UID && !e.pods[pod] && (bound || e.ready == corev1.ConditionUnknown)
}

// conflict notes that a pod was too old to be marked and returns when to try again.
func (m *marks) conflict(node string, pod types.UID) time.Duration {
	m.lock.Lock()
	defer m.lock.Unlock()
	e := m.nodes[node]
	if e == nil {
		return podConflictRetry
	}
	e.conflicts[pod]++
	return afterConflicts(podConflictRetry, e.conflicts[pod]-1)
}

func (m *marks) done(node string, pod types.UID) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if e := m.nodes[node]; e != nil {
		e.pods[pod] = true
	}
}
