package tainteviction

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// firstSeen records when this process first observed each NoExecute taint of each node. A standby records as well, so a
// new leader has the times of taints without timeAdded.
type firstSeen struct {
	lock  sync.Mutex
	nodes map[string]map[string]sighting // by node and by key: a node has one NoExecute taint of a key
}

// sighting holds the first sight of a NoExecute taint.
type sighting struct {
	id      taintID   // of the taint as last seen
	keySeen time.Time // since when the node has a taint of this key, with any value and timeAdded
	idSeen  time.Time // since when with this id
}

// taintID identifies a taint of a key.
type taintID struct {
	value string
	added int64 // Unix time in seconds; that of the zero time without timeAdded
}

func idOf(t corev1.Taint) taintID {
	return taintID{t.Value, ptr.Deref(t.TimeAdded, metav1.Time{}).Unix()}
}

func newFirstSeen() *firstSeen { return &firstSeen{nodes: map[string]map[string]sighting{}} }

// observe records the taints that a node has at now and drops removed taints.
func (s *firstSeen) observe(node *corev1.Node, now time.Time) {
	taints := noExecuteTaints(node.Spec.Taints)
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(taints) == 0 {
		delete(s.nodes, node.Name)
		return
	}
	before := s.nodes[node.Name]
	seen := make(map[string]sighting, len(taints))
	for _, t := range taints {
		next := sighting{idOf(t), now, now}
		switch last, ok := before[t.Key]; {
		case ok && last.id == next.id:
			next = last
		case ok && (!isHealthTaint(t) || last.id.added == next.id.added):
			// The node lifecycle controller keeps timeAdded, so a health taint with another timeAdded is a new taint.
			next.keySeen = last.keySeen
		}
		seen[t.Key] = next
	}
	s.nodes[node.Name] = seen
}

// find returns the sighting of a taint. If only a live read shows the timeAdded of a taint, the taint may have been
// removed and added again, so its times are now.
func (s *firstSeen) find(node string, t corev1.Taint, now time.Time) sighting {
	s.lock.Lock()
	defer s.lock.Unlock()
	id := idOf(t)
	switch last, ok := s.nodes[node][t.Key]; {
	case ok && last.id == id:
		return last
	case ok && last.id.added == id.added: // another value
		return sighting{id, last.keySeen, now}
	}
	return sighting{id, now, now}
}
