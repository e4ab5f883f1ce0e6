package tainteviction

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// firstSeen remembers when this process first saw each NoExecute taint of each node. It outlives terms: a standby watches too, so that
// it need not start anew with taints that carry no time.
type firstSeen struct {
	lock  sync.Mutex
	nodes map[string]map[taintID]time.Time
}

// taintID tells a taint from others and from itself put there another time.
type taintID struct {
	key, value string
	added      int64 // Unix time in seconds; zero if the taint carries none
}

func idOf(t corev1.Taint) taintID {
	id := taintID{key: t.Key, value: t.Value}
	if t.TimeAdded != nil {
		id.added = t.TimeAdded.Unix()
	}
	return id
}

func newFirstSeen() *firstSeen { return &firstSeen{nodes: map[string]map[taintID]time.Time{}} }

// observe notes the taints that a node has at now and forgets those that are gone.
func (s *firstSeen) observe(node *corev1.Node, now time.Time) {
	taints := noExecute(node.Spec.Taints)
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

// forget drops a node that was deleted.
func (s *firstSeen) forget(node string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.nodes, node)
}

// of returns when a taint was first seen on a node; at now if it was not.
func (s *firstSeen) of(node string, t corev1.Taint, now time.Time) time.Time {
	s.lock.Lock()
	defer s.lock.Unlock()
	if first, ok := s.nodes[node][idOf(t)]; ok {
		return first
	}
	return now
}
