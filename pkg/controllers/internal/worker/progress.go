package worker

import (
	"fmt"
	"sync"
	"time"
)

// stuckAfter is how long a sync may run before the loop counts as stuck: twice the longest time the API server works on one
// request (60 s). A queue with at least one worker stands still only if a sync does, so this one bound covers both.
const stuckAfter = 2 * time.Minute

// progress remembers since when each worker has been on its key.
type progress struct {
	lock    sync.Mutex
	running []time.Time // per worker: start of its sync, zero when idle; nil outside a term
}

func (p *progress) begin(workers int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.running = make([]time.Time, workers)
}

func (p *progress) end() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.running = nil
}

// set notes that a worker began at start, or that it is idle if start is zero.
func (p *progress) set(worker int, start time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.running[worker] = start
}

func (p *progress) check(now time.Time) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, start := range p.running {
		if d := now.Sub(start); !start.IsZero() && d > stuckAfter {
			return fmt.Errorf("a sync has been running for %v", d.Round(time.Second))
		}
	}
	return nil
}
