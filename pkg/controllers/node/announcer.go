package node

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Event reasons and texts, as kube-controller-manager v1.37 writes them.
const (
	eventRegistered = "RegisteredNode"
	eventRemoving   = "RemovingNode"
	eventNotReady   = "NodeNotReady"
)

// announcer records the events of nodes. It remembers which nodes this process has announced, so that it announces no node twice, however
// often it leads; of a node that goes while another leads both announce it.
type announcer struct {
	recorder record.EventRecorder

	lock  sync.Mutex
	nodes map[string]types.UID
}

func newAnnouncer(recorder record.EventRecorder) *announcer {
	return &announcer{recorder: recorder, nodes: map[string]types.UID{}}
}

// present announces a node that is new, and that an earlier node of the name is gone.
func (a *announcer) present(name string, uid types.UID) {
	a.lock.Lock()
	before, known := a.nodes[name]
	a.nodes[name] = uid
	a.lock.Unlock()
	if known && before == uid {
		return
	}
	if known {
		a.removing(name, before)
	}
	a.node(name, uid, eventRegistered, "Node %s event: Registered Node %s in Controller", name, name)
}

// gone announces that a node has gone, if it was announced.
func (a *announcer) gone(name string) {
	a.lock.Lock()
	uid, known := a.nodes[name]
	delete(a.nodes, name)
	a.lock.Unlock()
	if known {
		a.removing(name, uid)
	}
}

func (a *announcer) removing(name string, uid types.UID) {
	a.node(name, uid, eventRemoving, "Node %s event: Removing Node %s from Controller", name, name)
}

// notReady announces that we have set a node to Unknown.
func (a *announcer) notReady(name string, uid types.UID) {
	a.node(name, uid, eventNotReady, "Node %s status is now: %s", name, eventNotReady)
}

func (a *announcer) node(name string, uid types.UID, reason, format string, args ...any) {
	a.recorder.Eventf(reference(name, uid), corev1.EventTypeNormal, reason, format, args...)
}

func reference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// names are the nodes that were announced.
func (a *announcer) names() []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	return slices.Collect(maps.Keys(a.nodes))
}
