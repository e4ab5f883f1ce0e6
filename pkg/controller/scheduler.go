package controller

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// defaultSlowAfter is much longer than a few requests, and much shorter than admission that hangs.
	defaultSlowAfter = time.Second
	// slowPerWorker limits slow syncs. Each slow sync costs a goroutine and memory.
	slowPerWorker = 16
	// stuckAfter is the time without a request or response after which a sync is stuck: twice the longest
	// request of an API server (60 s). A queue only stops if a sync is stuck, so one limit covers both.
	stuckAfter = 2 * time.Minute
)

// scheduler decides which syncs may run. A sync occupies a worker until it is slow, that is for Patience.
// Then the worker takes another key.
//
// Keys may belong to groups. While a group has an overdue sync, its further syncs count as slow from the
// start and take no worker. A group may hold at most as many slow syncs as are still free, so a new group
// always finds some: one group gets half of slowMost, each of n groups one (n+1)th. Further keys of a group
// are held aside until a sync of the group ends.
type scheduler[K comparable] struct {
	workers  int
	slowMost int
	patience time.Duration
	changed  chan struct{} // receives when a sync has ended

	lock    sync.Mutex
	running map[*run]struct{}
	young   []*run // in order of start
	busy    int    // occupied workers
	slow    int
	groups  map[string]*group[K] // groups with slow syncs or keys held aside
}

type group[K comparable] struct {
	slow  int // slow syncs
	old   int // slow syncs that have run for Patience
	aside workqueue.TypedInterface[K]
}

// run is a running sync.
type run struct {
	group  string
	start  time.Time
	old    bool
	slow   bool                      // occupies no worker
	signed atomic.Pointer[time.Time] // time of the last request or response

	requests atomic.Int32 // number of requests
}

func (r *run) recordProgress(now time.Time) { r.signed.Store(&now) }

func newScheduler[K comparable](workers int, patience time.Duration) *scheduler[K] {
	c := &scheduler[K]{workers: workers, slowMost: slowPerWorker * workers, patience: patience, changed: make(chan struct{}, 1)}
	c.resetTerm()
	return c
}

// resetTerm forgets the syncs of a term, which have all ended.
func (c *scheduler[K]) resetTerm() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.running, c.young, c.busy, c.slow, c.groups = map[*run]struct{}{}, nil, 0, 0, map[string]*group[K]{}
}

// nextVacancy reports whether a sync may start. If not, in is the time until a worker becomes free, or 0 if a
// sync has to end first.
func (c *scheduler[K]) nextVacancy(now time.Time) (free bool, in time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.markSlow(now)
	switch {
	case c.slow >= c.slowMost:
		return false, 0
	case c.busy < c.workers:
		return true, 0
	}
	eldest := slices.IndexFunc(c.young, func(r *run) bool { return !r.slow })
	return false, c.young[eldest].start.Add(c.patience).Sub(now)
}

// markSlow marks syncs that have run for Patience. The caller holds the lock.
func (c *scheduler[K]) markSlow(now time.Time) {
	for len(c.young) > 0 && now.Sub(c.young[0].start) >= c.patience {
		r := c.young[0]
		c.young = c.young[1:]
		r.old = true
		c.groupOf(r.group).old++
		if !r.slow {
			c.busy--
			c.countSlow(r)
		}
	}
}

// countSlow counts a sync as slow. The caller holds the lock.
func (c *scheduler[K]) countSlow(r *run) {
	r.slow = true
	c.slow++
	c.groupOf(r.group).slow++
}

// groupOf returns the state of a group. The caller holds the lock.
func (c *scheduler[K]) groupOf(name string) *group[K] {
	g := c.groups[name]
	if g == nil {
		g = &group[K]{aside: workqueue.NewTyped[K]()}
		c.groups[name] = g
	}
	return g
}

// startSync records the start of a sync. It returns nil if the key is held aside.
func (c *scheduler[K]) startSync(key K, name string, now time.Time) *run {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.markSlow(now)
	r := &run{group: name, start: now}
	g := c.groups[name]
	switch {
	case name == "" || g == nil:
		c.busy++
	case !c.hasShare(g):
		g.aside.Add(key)
		return nil
	case g.old > 0:
		c.countSlow(r)
	default:
		c.busy++
	}
	r.recordProgress(now)
	c.running[r] = struct{}{}
	c.young = append(c.young, r)
	return r
}

// hasShare reports whether a group may have another slow sync. The caller holds the lock.
func (c *scheduler[K]) hasShare(g *group[K]) bool { return g.slow == 0 || g.slow < c.slowMost-c.slow }

// endSync records the end of a sync, and returns keys that are no longer held aside: one key of the group in
// place of the sync, and one more if the share of the group has grown. After a sync without a group it
// returns keys of all groups, because a key may have left its group.
func (c *scheduler[K]) endSync(r *run, now time.Time) []K {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.markSlow(now)
	delete(c.running, r)
	if !r.old {
		c.young = slices.DeleteFunc(c.young, func(y *run) bool { return y == r })
	}
	g := c.groups[r.group]
	if !r.slow {
		c.busy--
	} else {
		c.slow--
		g.slow--
		if r.old {
			g.old--
		}
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
	var keys []K
	for name, g := range c.groups {
		if name != r.group && r.group != "" || !c.hasShare(g) {
			continue
		}
		for n := 0; n < 2 && g.aside.Len() > 0; n++ {
			key, _ := g.aside.Get()
			g.aside.Done(key)
			keys = append(keys, key)
		}
		if g.slow == 0 && g.aside.Len() == 0 {
			delete(c.groups, name)
		}
	}
	return keys
}

func (c *scheduler[K]) checkStuck(now time.Time) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	for r := range c.running {
		if d := now.Sub(*r.signed.Load()); d > stuckAfter {
			return fmt.Errorf("a sync has neither sent a request nor received a response for %v", d.Round(time.Second))
		}
	}
	return nil
}
