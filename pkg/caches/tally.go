package caches

import "sync"

// tally counts objects by some value of theirs. It follows the events that handlers are told of, before any of them, and not the store,
// whose indexes can only be counted by copying them.
type tally struct {
	lock   sync.Mutex
	counts map[string]int // no zeros
}

func newTally() *tally { return &tally{counts: map[string]int{}} }

func (t *tally) of(value string) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.counts[value]
}

// move counts one object less with the old value and one more with the new one. An empty value is no value.
func (t *tally) move(old, new string) {
	if old == new {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if new != "" {
		t.counts[new]++
	}
	if old == "" {
		return
	}
	if t.counts[old]--; t.counts[old] <= 0 {
		delete(t.counts, old)
	}
}
