package garbagecollector

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Pauses after rejected requests about one object, doubled from the first to the last.
	minRejectedBackoff = time.Second
	maxRejectedBackoff = 10 * time.Minute
	// Pauses are longer while more requests per second are rejected.
	rejectedPerSecond, rejectedBurst = 50, 200
)

// termState holds the state of a term that the API does not hold. Its loss costs requests and events only.
type termState struct {
	lock       sync.Mutex
	owners     map[id]ownerRecord
	objects    map[id]objectRecord
	rejections *rate.Limiter
}

// ownerRecord belongs to an owner that is being deleted.
type ownerRecord struct {
	orphaning       bool
	since           time.Time // first sight of this kind of deletion
	cause           cause     // of the blockage; empty: none
	blockers        int       // dependents and types that blocked the owner at the last sync
	blockersChanged time.Time // last change of blockers; zero before the first sync
	reported        string    // blockage in the latest event
	reportedAt      time.Time
	unlisted        []unlistedType // at the last sync
}

// objectRecord belongs to an object that has to go, or may have to.
type objectRecord struct {
	cause             string // why the state of an owner is unknown; empty: no owner is unknown
	invalidNamespaces bool   // the event OwnerRefInvalidNamespace was sent
	failure           string // of the last request
	rejected          action // of the last request if that was rejected
	rejections        int    // consecutive ones
	retryAt           time.Time
	version           string // of the object that the rejected request was about
}

// backoff returns the time for which a rejected request must not be sent. It returns 0 if the request may be sent.
func (m objectRecord) backoff(a action, now time.Time) time.Duration {
	if m.rejected != a {
		return 0
	}
	return max(m.retryAt.Sub(now), 0)
}

// rejection returns the record after a rejected request.
func (m objectRecord) rejection(a action, version, failure string, all *rate.Limiter, now time.Time) objectRecord {
	if m.rejected != a {
		m.rejections = 0
	}
	pause := min(minRejectedBackoff<<min(m.rejections, 16), maxRejectedBackoff) + all.ReserveN(now, 1).DelayFrom(now)
	m.rejected, m.version, m.failure, m.retryAt = a, version, failure, now.Add(pause)
	m.rejections++
	return m
}

func newTermState() *termState {
	return &termState{owners: map[id]ownerRecord{}, objects: map[id]objectRecord{}, rejections: rate.NewLimiter(rejectedPerSecond, rejectedBurst)}
}

func (m *termState) reset() {
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.owners)
	clear(m.objects)
}

// owner returns the record of an owner. The record starts now if the owner is new or is deleted in another way.
func (m *termState) owner(key id, orphaning bool, now time.Time) ownerRecord {
	m.lock.Lock()
	defer m.lock.Unlock()
	record, ok := m.owners[key]
	if !ok || record.orphaning != orphaning {
		record = ownerRecord{orphaning: orphaning, since: now}
		m.owners[key] = record
	}
	return record
}

func (m *termState) setOwner(key id, record ownerRecord) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.owners[key] = record
}

// finishing returns all owners that are being deleted. A list collects the dependents of each of them.
func (m *termState) finishing() map[id]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	all := make(map[id]bool, len(m.owners))
	for key := range m.owners {
		all[key] = true
	}
	return all
}

func (m *termState) forgetOwner(key id) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.owners, key)
}

func (m *termState) object(key id) objectRecord {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.objects[key]
}

// setObject replaces the record of an object. The zero record is not stored.
func (m *termState) setObject(key id, record objectRecord) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.objects[key] = record; record == (objectRecord{}) {
		delete(m.objects, key)
	}
}

// prune forgets objects that are neither candidates nor in back-off.
func (m *termState) prune(mayBeGarbage func(id) bool, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	maps.DeleteFunc(m.objects, func(key id, o objectRecord) bool { return !mayBeGarbage(key) && !o.retryAt.After(now) })
}

// counts returns the number of blocked owners and objects by cause, and the longest time for which the blockers of an
// owner have not changed.
func (m *termState) counts(now time.Time) (causes map[string]int, standstill time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	causes = map[string]int{}
	for _, o := range m.owners {
		if o.cause == "" {
			continue
		}
		causes[string(o.cause)]++
		if !o.blockersChanged.IsZero() {
			standstill = max(standstill, now.Sub(o.blockersChanged))
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
