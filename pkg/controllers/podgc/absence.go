package podgc

import (
	"sync"
	"time"
)

// absence remembers since when node names have been missing from the cache. It lasts for one term.
type absence struct {
	lock  sync.Mutex
	since map[string]time.Time
}

func newAbsence() *absence { return &absence{since: map[string]time.Time{}} }

// note says that a node is missing at now and returns since when it has been.
func (a *absence) note(node string, now time.Time) time.Time {
	a.lock.Lock()
	defer a.lock.Unlock()
	if since, ok := a.since[node]; ok {
		return since
	}
	a.since[node] = now
	return now
}

// of returns since when a node has been missing, and whether it is.
func (a *absence) of(node string) (time.Time, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	since, ok := a.since[node]
	return since, ok
}

// end says that the node is there, or that nobody asks any more.
func (a *absence) end(node string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.since, node)
}
