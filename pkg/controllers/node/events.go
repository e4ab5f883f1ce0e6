package node

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// Event reasons and texts, as kube-controller-manager v1.37 writes them.
const (
	eventRegistered = "RegisteredNode"
	eventRemoving   = "RemovingNode"
	eventNotReady   = "NodeNotReady"
)

func reference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

func (c *Controller) tellRegistered(name string, uid types.UID) {
	c.recorder.Eventf(reference(name, uid), corev1.EventTypeNormal, eventRegistered,
		"Node %s event: Registered Node %s in Controller", name, name)
}

func (c *Controller) tellRemoving(name string, uid types.UID) {
	c.recorder.Eventf(reference(name, uid), corev1.EventTypeNormal, eventRemoving,
		"Node %s event: Removing Node %s from Controller", name, name)
}

func (c *Controller) tellNotReady(name string, uid types.UID) {
	c.recorder.Eventf(reference(name, uid), corev1.EventTypeNormal, eventNotReady, "Node %s status is now: %s", name, eventNotReady)
}

func (c *Controller) tellPodNotReady(pod *caches.Pod) {
	c.recorder.Event(pod.Reference(), corev1.EventTypeWarning, eventNotReady, "Node is not ready")
}

// acquaintance is the nodes that were announced by this process, so that each comes and goes once, however often we lead.
type acquaintance struct {
	lock  sync.Mutex
	nodes map[string]types.UID
}

// meet notes a node. It returns whether it is new, and the UID of an earlier node of the name, empty if there was none.
func (a *acquaintance) meet(name string, uid types.UID) (isNew bool, before types.UID) {
	a.lock.Lock()
	defer a.lock.Unlock()
	before, known := a.nodes[name]
	a.nodes[name] = uid
	return !known || before != uid, before
}

// part forgets a name and returns the UID it had, empty if it was not known.
func (a *acquaintance) part(name string) types.UID {
	a.lock.Lock()
	defer a.lock.Unlock()
	uid := a.nodes[name]
	delete(a.nodes, name)
	return uid
}

func (a *acquaintance) names() []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	return slices.Collect(maps.Keys(a.nodes))
}
