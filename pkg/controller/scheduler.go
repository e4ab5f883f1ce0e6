package controller

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultPatience is for syncs of a few requests: much longer than those take, much shorter than admission that hangs.
	defaultPatience = time.Second
	// slowPerWorker bounds the slow syncs, each of which costs a goroutine and what it works on.
	slowPerWorker = 16
	// stuckAfter is how long a sync may run without sending a request or getting an answer: twice the longest time the API server works on
	// one request (60 s). Syncs that wait for the API server are slow, not stuck. A queue with a worker stands still only if a sync does,
	// so this one bound covers both.
	stuckAfter = 2 * time.Minute
)

// scheduler decides which syncs may run. A sync occupies a worker until it has run for patience. After that it is old: it is waiting, as a rule for the API
// server, counts as slow, and its worker takes another key.
//
// Keys may belong to groups. While a group has an old sync, its further syncs count as slow from the start, so that they take no worker from others. A
// group may hold at most as many slow syncs as are still free, so that a newcomer always finds some: a single group gets half of slowMost, n groups
// get one (n+1)th each. Keys of a group that has its share wait aside until one of its syncs ends.
type scheduler[K comparable] struct {
	workers  int
	slowMost int
	patience time.Duration
	due      func(K) time.Time // of keys that stand aside, the earliest comes first; see NewLoopByDeadline
	changed  chan struct{}     // told when a sync has ended

	lock    sync.Mutex
	running map[*run]struct{}
	young   []*run // in the order of their start
	busy    int    // workers that are occupied
	slow    int
	groups  map[string]*group[K] // those with slow syncs or keys aside
}

// group is the state of one group.
type group[K comparable] struct {
	slow  int // its slow syncs
	old   int // those of them that have run for patience
	aside byDeadline[K]
}

// run is one sync that runs.
type run struct {
	group  string // empty: none
	start  time.Time
	old    bool
	slow   bool                      // it occupies no worker
	signed atomic.Pointer[time.Time] // when it last sent a request or got an answer

	requests atomic.Int32 // that it has sent
}

// sign notes a sign of life.
func (r *run) sign(now time.Time) { r.signed.Store(&now) }

func newScheduler[K comparable](workers int, patience time.Duration) *scheduler[K] {
	c := &scheduler[K]{workers: workers, slowMost: slowPerWorker * workers, patience: patience, changed: make(chan struct{}, 1)}
	c.due = func(K) time.Time { return time.Time{} }
	c.disband()
	return c
}

// disband forgets the syncs of a term, all of which have ended.
func (c *scheduler[K]) disband() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.running, c.young, c.busy, c.slow, c.groups = map[*run]struct{}{}, nil, 0, 0, map[string]*group[K]{}
}

// vacancy reports whether a sync may begin now. If not, in is when a worker becomes free, or 0 if only the end of a sync helps.
func (c *scheduler[K]) vacancy(now time.Time) (free bool, in time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.age(now)
	switch {
	case c.slow >= c.slowMost:
		return false, 0
	case c.busy < c.workers:
		return true, 0
	}
	eldest := slices.IndexFunc(c.young, func(r *run) bool { return !r.slow })
	return false, c.young[eldest].start.Add(c.patience).Sub(now)
}

// age takes note of the syncs that have become old. The lock is held.
func (c *scheduler[K]) age(now time.Time) {
	for len(c.young) > 0 && now.Sub(c.young[0].start) >= c.patience {
		r := c.young[0]
		c.young = c.young[1:]
		r.old = true
		c.of(r.group).old++
		if !r.slow {
			c.busy--
			c.slowDown(r)
		}
	}
}

// slowDown counts a sync as slow. The lock is held.
func (c *scheduler[K]) slowDown(r *run) {
	r.slow = true
	c.slow++
	c.of(r.group).slow++
}

// of returns what there is of a group. The lock is held.
func (c *scheduler[K]) of(name string) *group[K] {
	g := c.groups[name]
	if g == nil {
		g = &group[K]{aside: byDeadline[K]{due: c.due}}
		c.groups[name] = g
	}
	return g
}

// begin starts a sync of a key. It returns nil if the key stands aside instead.
func (c *scheduler[K]) begin(key K, name string, now time.Time) *run {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.age(now)
	r := &run{group: name, start: now}
	g := c.groups[name]
	switch {
	case name == "" || g == nil:
		c.busy++
	case !c.shares(g):
		g.aside.add(key)
		return nil
	case g.old > 0:
		c.slowDown(r)
	default:
		c.busy++
	}
	r.sign(now)
	c.running[r] = struct{}{}
	c.young = append(c.young, r)
	return r
}

// shares reports whether a group may have another sync. The lock is held.
func (c *scheduler[K]) shares(g *group[K]) bool { return g.slow == 0 || g.slow < c.slowMost-c.slow }

// end records the end of a sync, and returns keys of its group that need no longer stand aside: one in its place, and one more so that a
// group whose share has grown takes it. After a sync without a group these are keys of all groups: a key may have left its group while it stood aside.
func (c *scheduler[K]) end(r *run, now time.Time) []K {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.age(now)
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
		if name != r.group && r.group != "" || !c.shares(g) {
			continue
		}
		for n := 0; n < 2 && g.aside.Len() > 0; n++ {
			keys = append(keys, g.aside.Pop())
		}
		if g.slow == 0 && g.aside.Len() == 0 {
			delete(c.groups, name)
		}
	}
	return keys
}

// check returns an error if a sync is stuck.
func (c *scheduler[K]) check(now time.Time) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	for r := range c.running {
		if d := now.Sub(*r.signed.Load()); d > stuckAfter {
			return fmt.Errorf("a sync has neither sent a request nor got an answer for %v", d.Round(time.Second))
		}
	}
	return nil
}
