package node

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Event reasons of kube-controller-manager v1.37.
const (
	eventRegistered = "RegisteredNode"
	eventRemoving   = "RemovingNode"
	eventNotReady   = "NodeNotReady"
)

// announcer sends the events of nodes. The announced nodes are kept from term to term, so a process announces
// no node twice.
type announcer struct {
	recorder record.EventRecorder

	lock  sync.Mutex
	nodes map[string]types.UID
}

func newAnnouncer(recorder record.EventRecorder) *announcer {
	return &announcer{recorder: recorder, nodes: map[string]types.UID{}}
}

// announce sends the events of a new node, and of the end of an earlier node of the same name.
func (a *announcer) announce(name string, uid types.UID) {
	a.lock.Lock()
	before, known := a.nodes[name]
	a.nodes[name] = uid
	a.lock.Unlock()
	if known && before == uid {
		return
	}
	if known {
		a.announceRemoval(name, before)
	}
	a.send(name, uid, eventRegistered, "Node %s event: Registered Node %s in Controller", name, name)
}

// forget sends the event of the end of an announced node.
func (a *announcer) forget(name string) {
	a.lock.Lock()
	uid, known := a.nodes[name]
	delete(a.nodes, name)
	a.lock.Unlock()
	if known {
		a.announceRemoval(name, uid)
	}
}

func (a *announcer) announceRemoval(name string, uid types.UID) {
	a.send(name, uid, eventRemoving, "Node %s event: Removing Node %s from Controller", name, name)
}

// announceNotReady sends the event of a node that became Unknown.
func (a *announcer) announceNotReady(name string, uid types.UID) {
	a.send(name, uid, eventNotReady, "Node %s status is now: %s", name, eventNotReady)
}

func (a *announcer) send(name string, uid types.UID, reason, format string, args ...any) {
	a.recorder.Eventf(nodeReference(name, uid), corev1.EventTypeNormal, reason, format, args...)
}

func nodeReference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// announced returns the announced nodes.
func (a *announcer) announced() []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	return slices.Collect(maps.Keys(a.nodes))
}
