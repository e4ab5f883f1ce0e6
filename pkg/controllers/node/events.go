package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Event reasons of kube-controller-manager v1.37.
const (
	eventRegistered = "RegisteredNode"
	eventRemoving   = "RemovingNode"
	eventNotReady   = "NodeNotReady"
)

// reportRegistered sends the events of a new node, and of the end of an earlier node of the same name.
func (c *Controller) reportRegistered(name string, uid types.UID) {
	before, known := c.registered.Swap(name, uid)
	if known && before == uid {
		return
	}
	if known {
		c.reportRemoved(name, before.(types.UID))
	}
	c.sendEvent(name, uid, eventRegistered, "Node %s event: Registered Node %s in Controller", name, name)
}

func (c *Controller) reportRemoved(name string, uid types.UID) {
	c.sendEvent(name, uid, eventRemoving, "Node %s event: Removing Node %s from Controller", name, name)
}

func (c *Controller) sendEvent(name string, uid types.UID, reason, format string, args ...any) {
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
	c.recorder.Eventf(node, corev1.EventTypeNormal, reason, format, args...)
}
