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
	// detachedPerWorker limits detached syncs. A detached sync costs a goroutine and memory.
	detachedPerWorker = 16
	// stuckAfter is the time without a request or response after which a sync is stuck: twice the longest
	// request of an API server (60 s).
	stuckAfter = 2 * time.Minute
)

// scheduler decides which syncs may run. A sync is slow after slowAfter. A slow sync is detached: another worker
// starts, and the worker of the sync ends with the sync.
//
// Keys may belong to groups. While a group has a slow sync, further syncs of the group are detached at once. A group
// may have at most as many detached syncs as are still free, so a new group always finds some: one group gets half of
// maxDetached, each of n groups one (n+1)th.
type scheduler[K comparable] struct {
	slowAfter   time.Duration
	maxDetached int
	startWorker func() // set for each term

	lock     sync.Mutex
	running  map[*run]struct{}
	detached int
	groups   map[string]*group[K] // groups with detached syncs
}

type group[K comparable] struct {
	detached int            // detached syncs
	slow     int            // detached syncs that have run for slowAfter
	withheld map[K]struct{} // keys without a share
}

// run is a running sync.
type run struct {
	key          any
	group        string
	slowTimer    *time.Timer
	slow         bool                      // has run for slowAfter
	detached     bool                      // another worker has replaced the worker of the sync
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
		if g.detached >= s.maxDetached-s.detached {
			g.withheld[key] = struct{}{}
			return nil
		}
		delete(g.withheld, key)
		if g.slow > 0 {
			s.detachLocked(r)
		}
	}
	r.recordProgress(now)
	s.running[r] = struct{}{}
	r.slowTimer = time.AfterFunc(s.slowAfter, func() { s.markSlow(r) })
	return r
}

// detachLocked replaces the worker of a sync.
func (s *scheduler[K]) detachLocked(r *run) {
	g := s.groups[r.group]
	if g == nil {
		g = &group[K]{withheld: map[K]struct{}{}}
		s.groups[r.group] = g
	}
	r.detached = true
	g.detached++
	s.detached++
	s.startWorker()
}

// markSlow marks a sync that has run for slowAfter. While too many syncs are detached, the sync keeps its worker.
func (s *scheduler[K]) markSlow(r *run) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, running := s.running[r]; !running {
		return
	}
	if !r.detached {
		if s.detached >= s.maxDetached {
			r.slowTimer.Reset(s.slowAfter)
			return
		}
		s.detachLocked(r)
	}
	r.slow = true
	s.groups[r.group].slow++
}

// endSync ends a sync. The end of a detached sync makes room for others, so endSync returns at most two withheld keys
// of each group with room. A group without detached syncs has no limit: endSync returns all its keys.
func (s *scheduler[K]) endSync(r *run) (keys []K) {
	s.lock.Lock()
	defer s.lock.Unlock()
	r.slowTimer.Stop()
	delete(s.running, r)
	if !r.detached {
		return nil
	}
	s.detached--
	s.groups[r.group].detached--
	if r.slow {
		s.groups[r.group].slow--
	}
	for name, g := range s.groups {
		room := min(s.maxDetached-s.detached-g.detached, 2)
		if g.detached == 0 {
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
