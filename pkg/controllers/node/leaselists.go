package node

import (
	"context"
	"sync"
	"time"
)

const (
	leaseInterval = 10 * time.Second       // kubelets renew every quarter of the lease duration of 40 s
	manyNodes     = 3                      // so many nodes are asked for one by one
	manyShare     = 10                     // or one in so many
	listAge       = 2 * time.Second        // how long a list of Leases serves, from when it has been read
	minListRetry  = time.Second            // after a list that failed no other is made for so long, and after each further one for twice as long
	maxListRetry  = 10 * time.Second       // but no longer
	countAge      = 100 * time.Millisecond // how long a count of the nodes that are due serves
)

// leaseLists makes lists of all Leases, one at a time, for all who need one. Whoever waits for the list of another may wait for as long as
// it takes: that says nothing about the node in question.
type leaseLists struct {
	list func(context.Context) error
	many func(now time.Time) bool // whether so many nodes are due that a list is cheaper
	now  func() time.Time

	lock    sync.Mutex
	asked   time.Time     // when the last list that was read was asked for: what it shows is no older
	read    time.Time     // when it had been read to its end
	failed  time.Time     // when one failed last
	retry   time.Duration // no other is made for so long after that; 0: the last one did not fail
	begun   time.Time     // when the list that is being made was asked for
	running chan struct{} // closed when it has ended; nil: none is being made
	counted time.Time
	isMany  bool
}

// covers reports whether there is a list of Leases from after due, making one if many nodes want it. If not, the node's own Lease has to
// be read. An error is the context's.
func (l *leaseLists) covers(ctx context.Context, due time.Time) (bool, error) {
	for {
		covered, wait, mine := l.join(due)
		switch {
		case mine:
			l.finish(l.list(ctx))
		case wait == nil:
			return covered, nil
		default:
			select {
			case <-wait:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
	}
}

// join tells whether there is a list, or what to wait for, or that the caller is to make it.
func (l *leaseLists) join(due time.Time) (covered bool, wait <-chan struct{}, mine bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.now()
	switch {
	case l.asked.After(due) && now.Sub(l.read) < listAge:
		return true, nil, false
	case l.isRefused(now):
		return false, nil, false
	case l.running != nil:
		return false, l.running, false
	}
	if now.Sub(l.counted) >= countAge {
		l.counted, l.isMany = now, l.many(now)
	}
	if !l.isMany {
		return false, nil, false
	}
	l.start(now)
	return false, nil, true
}

// isRefused reports whether a list has failed so lately that no other is made. The lock is held.
func (l *leaseLists) isRefused(now time.Time) bool {
	return now.Sub(l.failed) < l.retry
}

// renew makes a list, or waits for the one that is being made, unless one has failed lately.
func (l *leaseLists) renew(ctx context.Context) error {
	l.lock.Lock()
	wait := l.running
	if wait == nil && l.isRefused(l.now()) {
		l.lock.Unlock()
		return nil
	}
	if wait == nil {
		l.start(l.now())
	}
	l.lock.Unlock()
	if wait == nil {
		return l.finish(l.list(ctx))
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *leaseLists) start(now time.Time) { l.running, l.begun = make(chan struct{}), now }

func (l *leaseLists) finish(err error) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.now()
	if err != nil {
		l.failed, l.retry = now, min(max(minListRetry, 2*l.retry), maxListRetry)
	} else {
		l.asked, l.read, l.retry = l.begun, now, 0
	}
	close(l.running)
	l.running = nil
	return err
}
