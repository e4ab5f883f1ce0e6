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
	// Pauses are longer while more requests per second are rejected, or more reads of owners fail.
	failuresPerSecond, failuresBurst = 40, 200
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
	cause             string    // why the sync decided nothing; may be empty
	invalidNamespaces bool      // the event OwnerRefInvalidNamespace was sent
	failure           string    // of the last request
	rejectedAction    action    // of the last request if that was rejected
	rejections        int       // consecutive ones
	retryAt           time.Time // earliest repetition of the rejected request
	version           string    // of the object that the rejected request was about
}

// rejection returns the record after a rejected request.
func (r objectRecord) rejection(a action, version, failure string, all *rate.Limiter, now time.Time) objectRecord {
	if r.rejectedAction != a {
		r.rejections = 0
	}
	pause := min(minRejectedBackoff<<min(r.rejections, 16), maxRejectedBackoff) + all.ReserveN(now, 1).DelayFrom(now)
	r.rejectedAction, r.version, r.failure, r.retryAt = a, version, failure, now.Add(pause)
	r.rejections++
	return r
}

func newTermState() *termState {
	s := &termState{}
	s.reset()
	return s
}

func (s *termState) reset() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.owners, s.objects = map[id]ownerRecord{}, map[id]objectRecord{}
	s.rejections = rate.NewLimiter(failuresPerSecond, failuresBurst)
}

// owner returns the record of an owner. The record starts now if the owner is new or is deleted in another way.
func (s *termState) owner(key id, orphaning bool, now time.Time) ownerRecord {
	s.lock.Lock()
	defer s.lock.Unlock()
	record, ok := s.owners[key]
	if !ok || record.orphaning != orphaning {
		record = ownerRecord{orphaning: orphaning, since: now}
		s.owners[key] = record
	}
	return record
}

func (s *termState) setOwner(key id, record ownerRecord) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.owners[key] = record
}

// ownersWhere returns the owners with selected records, in random order.
func (s *termState) ownersWhere(selected func(ownerRecord) bool) (keys []id) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for key, record := range s.owners {
		if selected(record) {
			keys = append(keys, key)
		}
	}
	return keys
}

// orphaning returns the owners that leave orphans. A list collects the dependents of each of them.
func (s *termState) orphaning() []id {
	return s.ownersWhere(func(r ownerRecord) bool { return r.orphaning })
}

func (s *termState) forgetOwner(key id) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.owners, key)
}

func (s *termState) object(key id) objectRecord {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.objects[key]
}

// setObject replaces the record of an object. The zero record is not stored.
func (s *termState) setObject(key id, record objectRecord) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.objects[key] = record; record == (objectRecord{}) {
		delete(s.objects, key)
	}
}

// prune forgets objects that are neither candidates nor in back-off.
func (s *termState) prune(mayBeGarbage func(id) bool, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	maps.DeleteFunc(s.objects, func(key id, o objectRecord) bool { return !mayBeGarbage(key) && !o.retryAt.After(now) })
}

// counts returns the number of blocked owners and objects by cause, and the longest time for which the blockers of an
// owner have not changed.
func (s *termState) counts(now time.Time) (causes map[string]int, longest time.Duration) {
	s.lock.Lock()
	defer s.lock.Unlock()
	causes = map[string]int{}
	for _, o := range s.owners {
		if o.cause == "" {
			continue
		}
		causes[string(o.cause)]++
		if !o.blockersChanged.IsZero() {
			longest = max(longest, now.Sub(o.blockersChanged))
		}
	}
	for _, o := range s.objects {
		switch {
		case o.cause != "":
			causes[o.cause]++
		case o.rejectedAction != "":
			causes[string(causeRejected)]++
		case o.failure != "":
			causes[string(causeFailed)]++
		}
	}
	return causes, longest
}
