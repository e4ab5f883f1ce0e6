package controller

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultSlowAfter is much longer than a few requests, and much shorter than admission that hangs.
	defaultSlowAfter = time.Second
	// slowPerWorker limits slow syncs. Each slow sync costs a goroutine and memory.
	slowPerWorker = 16
	// stuckAfter is the time without a request or response after which a sync is stuck: twice the longest
	// request of an API server (60 s).
	stuckAfter = 2 * time.Minute
)

// scheduler decides which syncs may run. A sync occupies its worker until it is slow, that is for slowAfter. Then
// another worker starts, and the worker of the slow sync ends with it.
//
// Keys may belong to groups. While a sync of a group has run for slowAfter, further ones count as slow at once. A group
// may hold at most as many slow syncs as are still free, so a new group always finds some: one group gets half of
// slowMost, each of n groups one (n+1)th.
type scheduler[K comparable] struct {
	slowAfter   time.Duration
	slowMost    int
	startWorker func() // set for each term

	lock    sync.Mutex
	running map[*run]struct{}
	slow    int
	groups  map[string]*group[K] // groups with slow syncs
}

type group[K comparable] struct {
	slow     int            // slow syncs
	old      int            // slow syncs that have run for slowAfter
	withheld map[K]struct{} // keys without a share
}

// run is a running sync.
type run struct {
	key          any
	group        string
	slowTimer    *time.Timer
	old          bool
	slow         bool                      // its worker has been replaced
	lastProgress atomic.Pointer[time.Time] // time of the last request or response
	requests     atomic.Int32              // number of requests
}

func (r *run) recordProgress(now time.Time) { r.lastProgress.Store(&now) }

// startSync records the start of a sync. If the group has no share left, startSync withholds the key and returns
// nil.
func (s *scheduler[K]) startSync(key K, name string, now time.Time) *run {
	s.lock.Lock()
	defer s.lock.Unlock()
	r := &run{key: key, group: name}
	if g := s.groups[name]; name != "" && g != nil {
		if g.slow >= s.slowMost-s.slow {
			g.withheld[key] = struct{}{}
			return nil
		}
		delete(g.withheld, key)
		if g.old > 0 {
			s.countSlowLocked(r)
		}
	}
	r.recordProgress(now)
	s.running[r] = struct{}{}
	r.slowTimer = time.AfterFunc(s.slowAfter, func() { s.markOld(r) })
	return r
}

// countSlowLocked counts a sync as slow and replaces its worker.
func (s *scheduler[K]) countSlowLocked(r *run) {
	g := s.groups[r.group]
	if g == nil {
		g = &group[K]{withheld: map[K]struct{}{}}
		s.groups[r.group] = g
	}
	r.slow = true
	g.slow++
	s.slow++
	s.startWorker()
}

// markOld marks a sync that has run for slowAfter. While too many syncs are slow, the sync keeps its worker.
func (s *scheduler[K]) markOld(r *run) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, running := s.running[r]; !running {
		return
	}
	if !r.slow {
		if s.slow >= s.slowMost {
			r.slowTimer.Reset(s.slowAfter)
			return
		}
		s.countSlowLocked(r)
	}
	r.old = true
	s.groups[r.group].old++
}

// endSync ends a sync. The end of a slow sync makes room for others, so endSync returns at most two withheld keys of
// each group with room. A group without slow syncs has no limit: endSync returns all its keys.
func (s *scheduler[K]) endSync(r *run) (keys []K) {
	s.lock.Lock()
	defer s.lock.Unlock()
	r.slowTimer.Stop()
	delete(s.running, r)
	if !r.slow {
		return nil
	}
	s.slow--
	s.groups[r.group].slow--
	if r.old {
		s.groups[r.group].old--
	}
	for name, g := range s.groups {
		room := min(s.slowMost-s.slow-g.slow, 2)
		if g.slow == 0 {
			delete(s.groups, name)
			room = len(g.withheld)
		}
		for key := range g.withheld {
			if room--; room < 0 {
				break
			}
			delete(g.withheld, key)
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *scheduler[K]) checkStuck(now time.Time) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	for r := range s.running {
		if d := now.Sub(*r.lastProgress.Load()); d > stuckAfter {
			return fmt.Errorf("the sync of %v has neither sent a request nor received a response for %v", r.key, d.Round(time.Second))
		}
	}
	return nil
}
