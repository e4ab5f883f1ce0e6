package tainteviction

import (
	"sync"
	"time"
)

// trustWindows is after how many windows a term trusts the taints of health whatever the Leases say. A node whose
// kubelet renews its Lease but cannot post its status is not ready for all others, so its pods must leave some day.
const trustWindows = 3

// trust says from when on a term trusts the taints of health: nodes whose taint is older than the term may have recovered while nobody was
// looking. It lasts for one term.
type trust struct {
	start  time.Time
	window time.Duration // zero: trust them from the start

	lock  sync.Mutex
	nodes map[string]leaseSeen
}

// leaseSeen is what was seen of the Lease of a node that was unreachable before the term.
type leaseSeen struct {
	renewed time.Time // the Lease's renewTime; zero: no Lease or no time
	trusted time.Time // from when on its taints count
}

func newTrust(start time.Time, window time.Duration) *trust {
	return &trust{start: start, window: window, nodes: map[string]leaseSeen{}}
}

// needsLease reports whether the taints of a node are to be trusted only after its Lease has been read.
func (t *trust) needsLease(node nodeState, now time.Time) bool {
	return now.Before(t.end()) && node.unreachableBefore(t.start)
}

func (t *trust) end() time.Time { return t.start.Add(trustWindows * t.window) }

// trusted is from when on the taints of a node count.
func (t *trust) trusted(node string) time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	if w, ok := t.nodes[node]; ok {
		return w.trusted
	}
	return t.start.Add(t.window)
}

// known reports whether the node's Lease has been read.
func (t *trust) known(node string) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	_, ok := t.nodes[node]
	return ok
}

// note tells what the Lease of a node shows at now.
func (t *trust) note(node string, renewed, now time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	w, ok := t.nodes[node]
	t.nodes[node] = t.next(w, !ok, renewed, now)
}

// next gives the node a window in which its Lease must not be renewed: from the start of the term at first, from now when it was
// renewed, or when it was not read while the first window lasted.
func (t *trust) next(w leaseSeen, first bool, renewed, now time.Time) leaseSeen {
	if !first && !renewed.After(w.renewed) {
		return w
	}
	next := leaseSeen{renewed: renewed, trusted: now.Add(t.window)}
	if first && now.Before(t.start.Add(t.window)) {
		next.trusted = t.start.Add(t.window)
	}
	if next.trusted.After(t.end()) {
		next.trusted = t.end()
	}
	return next
}
