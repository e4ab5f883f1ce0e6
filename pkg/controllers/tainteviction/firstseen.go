package tainteviction

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// firstSeen records the time at which this process first observed each NoExecute taint of each node. A standby
// records as well, so a new leader has the times of taints without timeAdded.
type firstSeen struct {
	lock  sync.Mutex
	nodes map[string]map[taintID]time.Time
}

// taintID identifies a taint. The same taint with another timeAdded is a different taint.
type taintID struct {
	key, value string
	added      int64 // Unix time in seconds; zero without timeAdded
}

func idOf(t corev1.Taint) taintID {
	id := taintID{key: t.Key, value: t.Value}
	if t.TimeAdded != nil {
		id.added = t.TimeAdded.Unix()
	}
	return id
}

func newFirstSeen() *firstSeen { return &firstSeen{nodes: map[string]map[taintID]time.Time{}} }

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
	seen := make(map[taintID]time.Time, len(taints))
	for _, t := range taints {
		id := idOf(t)
		seen[id] = now
		if first, ok := before[id]; ok {
			seen[id] = first
		}
	}
	s.nodes[node.Name] = seen
}

func (s *firstSeen) forget(node string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.nodes, node)
}

// timeOf returns the time of the first observation of a taint, now if there is none.
func (s *firstSeen) timeOf(node string, t corev1.Taint, now time.Time) time.Time {
	s.lock.Lock()
	defer s.lock.Unlock()
	if first, ok := s.nodes[node][idOf(t)]; ok {
		return first
	}
	return now
}
