package garbagecollector

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Pauses after rejected requests about one object, doubled from the first to the last.
	minRejectedPause = time.Second
	maxRejectedPause = 10 * time.Minute
	// Pauses are longer while more requests per second are rejected.
	rejectedPerSecond, rejectedBurst = 50, 200
)

// memories hold the state of a term that the API does not hold. Their loss costs requests and events only.
type memories struct {
	lock       sync.Mutex
	owners     map[id]ownerMemory
	objects    map[id]objectMemory
	rejections *rate.Limiter
}

// ownerMemory belongs to an owner that is being deleted.
type ownerMemory struct {
	orphaning  bool
	since      time.Time // first sight of this kind of deletion
	collected  time.Time // last time that all dependents were requeued
	cause      cause     // of the blockage; empty: none
	holders    int       // dependents and types that blocked the owner at the last look
	moved      time.Time // last change of holders; zero before the first look
	reported   blockageSummary
	reportedAt time.Time
	logged     bool            // a rejection was logged
	blind      map[string]bool // types that the last sweep of all types could not list
}

// blockageSummary is compared to detect news for an event.
type blockageSummary struct {
	cause   cause
	holders int
	failure string
}

// objectMemory belongs to an object that has to go, or may have to.
type objectMemory struct {
	cause             string // why the state of an owner is unknown; empty: no owner is unknown
	invalidNamespaces bool   // the event OwnerRefInvalidNamespace was sent
	failure           string // of the last request
	rejected          action // of the last request if that was rejected
	rejections        int    // consecutive ones
	retryAt           time.Time
	version           string // of the object that the rejected request was about
}

// pause returns the time for which a rejected request must not be sent. It returns 0 if the request may be sent.
func (m objectMemory) pause(a action, now time.Time) time.Duration {
	if m.rejected != a {
		return 0
	}
	return max(m.retryAt.Sub(now), 0)
}

// rejection returns the memory after a rejected request.
func (m objectMemory) rejection(a action, version, failure string, all *rate.Limiter, now time.Time) objectMemory {
	if m.rejected != a {
		m.rejections = 0
	}
	pause := min(minRejectedPause<<min(m.rejections, 16), maxRejectedPause) + all.ReserveN(now, 1).DelayFrom(now)
	m.rejected, m.version, m.failure, m.retryAt = a, version, failure, now.Add(pause)
	m.rejections++
	return m
}

func newMemories() *memories {
	return &memories{owners: map[id]ownerMemory{}, objects: map[id]objectMemory{}, rejections: rate.NewLimiter(rejectedPerSecond, rejectedBurst)}
}

func (m *memories) reset() {
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.owners)
	clear(m.objects)
}

// owner returns the memory of an owner. The memory starts now if the owner is new or is deleted in another way.
func (m *memories) owner(key id, orphaning bool, now time.Time) ownerMemory {
	m.lock.Lock()
	defer m.lock.Unlock()
	memory, ok := m.owners[key]
	if !ok || memory.orphaning != orphaning {
		memory = ownerMemory{orphaning: orphaning, since: now, collected: now}
		m.owners[key] = memory
	}
	return memory
}

// note changes the memory of an owner and returns it. It does nothing if the owner was forgotten meanwhile.
func (m *memories) note(key id, change func(*ownerMemory)) (ownerMemory, bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	memory, ok := m.owners[key]
	if ok {
		change(&memory)
		m.owners[key] = memory
	}
	return memory, ok
}

// finishing returns all owners that are being deleted. A list collects the dependents of each of them.
func (m *memories) finishing() map[id]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	all := make(map[id]bool, len(m.owners))
	for key := range m.owners {
		all[key] = true
	}
	return all
}

func (m *memories) forgetOwner(key id) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.owners, key)
}

func (m *memories) object(key id) objectMemory {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.objects[key]
}

// setObject replaces the memory of an object. The zero memory is not stored.
func (m *memories) setObject(key id, memory objectMemory) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.objects[key] = memory; memory == (objectMemory{}) {
		delete(m.objects, key)
	}
}

// prune forgets owners that the graph does not show, and objects that are neither doubted nor in back-off.
func (m *memories) prune(shown, doubted func(id) bool, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	maps.DeleteFunc(m.owners, func(key id, _ ownerMemory) bool { return !shown(key) })
	maps.DeleteFunc(m.objects, func(key id, o objectMemory) bool { return !doubted(key) && !o.retryAt.After(now) })
}

// counts returns the number of blocked owners and objects by cause, and the longest time for which the holders of an
// owner have not changed.
func (m *memories) counts(now time.Time) (causes map[string]int, standstill time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	causes = map[string]int{}
	for _, o := range m.owners {
		if o.cause == "" {
			continue
		}
		causes[string(o.cause)]++
		if !o.moved.IsZero() {
			standstill = max(standstill, now.Sub(o.moved))
		}
	}
	for _, o := range m.objects {
		if o.cause != "" {
			causes[o.cause]++
		}
		if o.rejected != "" {
			causes[string(causeRejected)]++
		}
	}
	return causes, standstill
}
