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
	// withheldFor is the delay of a key whose group has no share left.
	withheldFor = time.Second
	// stuckAfter is the time without a request or response after which a sync is stuck: twice the longest
	// request of an API server (60 s). A queue only stops if a sync is stuck, so one limit covers both.
	stuckAfter = 2 * time.Minute
)

// scheduler decides which syncs may run. A sync occupies a worker until it is slow, that is for patience. Then the
// worker takes another key.
//
// Keys may belong to groups. While a group has an overdue sync, its further syncs count as slow from the start and
// take no worker. A group may hold at most as many slow syncs as are still free, so a new group always finds some:
// one group gets half of slowMost, each of n groups one (n+1)th.
type scheduler struct {
	patience time.Duration
	slowMost int
	workers  chan struct{} // semaphore

	lock    sync.Mutex
	running map[*run]struct{}
	slow    int
	groups  map[string]*group // groups with slow syncs
}

type group struct {
	slow int // slow syncs
	old  int // slow syncs that have run for patience
}

// run is a running sync.
type run struct {
	group    string
	overdue  *time.Timer
	old      bool
	slow     bool                      // occupies no worker
	signed   atomic.Pointer[time.Time] // time of the last request or response
	requests atomic.Int32              // number of requests
}

func (r *run) recordProgress(now time.Time) { r.signed.Store(&now) }

func newScheduler(workers int, patience time.Duration) *scheduler {
	return &scheduler{
		patience: patience, slowMost: slowPerWorker * workers, workers: make(chan struct{}, workers),
		running: map[*run]struct{}{}, groups: map[string]*group{},
	}
}

// startSync starts a sync on a worker that the caller has taken. It returns nil if the group has no share left.
func (s *scheduler) startSync(name string, now time.Time) *run {
	s.lock.Lock()
	defer s.lock.Unlock()
	r := &run{group: name}
	if g := s.groups[name]; name != "" && g != nil {
		if g.slow >= s.slowMost-s.slow {
			return nil
		}
		if g.old > 0 {
			s.countSlow(r)
		}
	}
	r.recordProgress(now)
	s.running[r] = struct{}{}
	r.overdue = time.AfterFunc(s.patience, func() { s.markOld(r) })
	return r
}

// countSlow counts a sync as slow and frees its worker. The caller holds the lock.
func (s *scheduler) countSlow(r *run) {
	g := s.groups[r.group]
	if g == nil {
		g = &group{}
		s.groups[r.group] = g
	}
	r.slow = true
	g.slow++
	s.slow++
	<-s.workers
}

// markOld marks a sync that has run for patience. While too many syncs are slow, the sync keeps its worker.
func (s *scheduler) markOld(r *run) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if _, running := s.running[r]; !running {
		return
	}
	if !r.slow {
		if s.slow >= s.slowMost {
			r.overdue.Reset(s.patience)
			return
		}
		s.countSlow(r)
	}
	r.old = true
	s.groups[r.group].old++
}

func (s *scheduler) endSync(r *run) {
	s.lock.Lock()
	defer s.lock.Unlock()
	r.overdue.Stop()
	delete(s.running, r)
	if !r.slow {
		<-s.workers
		return
	}
	g := s.groups[r.group]
	s.slow--
	g.slow--
	if r.old {
		g.old--
	}
	if g.slow == 0 {
		delete(s.groups, r.group)
	}
}

func (s *scheduler) checkStuck(now time.Time) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	for r := range s.running {
		if d := now.Sub(*r.signed.Load()); d > stuckAfter {
			return fmt.Errorf("a sync has neither sent a request nor received a response for %v", d.Round(time.Second))
		}
	}
	return nil
}
