package tainteviction

import (
	"sync"
	"time"
)

// settleCap is how many windows after its start a term trusts the taints of health whatever the Leases say. A node whose
// kubelet renews its Lease but cannot post its status is not ready for all others, so its pods must leave some day.
const settleCap = 3

// settling says from when on a term trusts the taints of health. A term begins knowing nothing: nodes whose taint is older may have
// recovered while nobody was looking. It lasts for one term.
type settling struct {
	start  time.Time
	window time.Duration // zero: trust them from the start

	lock  sync.Mutex
	nodes map[string]witness
}

// witness is what was seen of the Lease of a node that was unreachable before the term.
type witness struct {
	renewed time.Time // the Lease's renewTime; zero: no Lease or no time
	trusted time.Time // from when on its taints count
}

func newSettling(start time.Time, window time.Duration) *settling {
	return &settling{start: start, window: window, nodes: map[string]witness{}}
}

// asks reports whether the taints of a node are to be trusted only with a look at its Lease.
func (s *settling) asks(node nodeState, now time.Time) bool {
	return now.Before(s.end()) && node.unreachableBefore(s.start)
}

func (s *settling) end() time.Time { return s.start.Add(settleCap * s.window) }

// trusted is from when on the taints of a node count.
func (s *settling) trusted(node string) time.Time {
	s.lock.Lock()
	defer s.lock.Unlock()
	if w, ok := s.nodes[node]; ok {
		return w.trusted
	}
	return s.start.Add(s.window)
}

// known reports whether the node's Lease has been looked at.
func (s *settling) known(node string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	_, ok := s.nodes[node]
	return ok
}

// note tells what the Lease of a node shows at now.
func (s *settling) note(node string, renewed, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	w, ok := s.nodes[node]
	s.nodes[node] = s.next(w, !ok, renewed, now)
}

// next gives the node a window in which its Lease must not be renewed: from the start of the term at first, from now when it was
// renewed, or when it was never looked at while the first window lasted.
func (s *settling) next(w witness, first bool, renewed, now time.Time) witness {
	if !first && !renewed.After(w.renewed) {
		return w
	}
	next := witness{renewed: renewed, trusted: now.Add(s.window)}
	if first && now.Before(s.start.Add(s.window)) {
		next.trusted = s.start.Add(s.window)
	}
	if next.trusted.After(s.end()) {
		next.trusted = s.end()
	}
	return next
}
