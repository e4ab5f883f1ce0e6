package garbagecollector

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// noticeAfter is how long an owner must have been held before an event tells of it: most are held for a moment only.
	noticeAfter = 30 * time.Second
	// noticeAgain repeats the event while nothing changes. The API server drops events after an hour by default.
	noticeAgain = 10 * time.Minute
)

// memories are what is remembered during a term. Losing them costs requests and events, and nothing else.
type memories struct {
	lock       sync.Mutex
	owners     map[id]ownerMemory
	objects    map[id]objectMemory
	rejections *rate.Limiter
}

// ownerMemory is of an owner that is being deleted.
type ownerMemory struct {
	orphaning bool
	since     time.Time // when it was first seen to be deleted in this way
	collected time.Time // when its dependents were last woken on its account
	why       reason    // what holds it; empty: nothing
	holders   int       // how many dependents and types held it at the last look
	moved     time.Time // when holders last changed; zero: it has not been looked at yet
	notice    notice
	told      bool // the rejection of a request has been logged

	listed   bool                          // orphaning: all types have been listed once, and something still held the owner
	unlisted map[schema.GroupResource]bool // the types whose list failed the last time
	late     int                           // orphaning: how often dependents came while the references of others were taken away
}

// notice is the last event about what holds an owner.
type notice struct {
	text string
	at   time.Time
}

// due reports whether an event should tell of a text now.
func (n notice) due(text string, waited time.Duration, now time.Time) bool {
	switch {
	case text == "" || waited < noticeAfter:
		return false
	case text != n.text:
		return now.Sub(n.at) >= noticeAfter // a queue of a thousand dependents changes all the time
	}
	return now.Sub(n.at) >= noticeAgain
}

// objectMemory is of an object that should go, or may have to.
type objectMemory struct {
	held string // why nothing can be told of an owner; empty: there is no such owner
	told bool   // the event OwnerRefInvalidNamespace has been sent

	refused string // what the last request about it was answered, if it was not done
	// The last request, if it was rejected, how often in a row, and when it may be sent again. Events do not shorten the pause.
	rejected deed
	times    int
	again    time.Time
	version  string // of the object that the rejected request was about
}

const (
	// Pauses after requests about an object that were rejected, doubled from the first to the last. A policy that keeps ten thousand objects is asked
	// twenty times a second then.
	minRejectedPause = time.Second
	maxRejectedPause = 10 * time.Minute
	// Beyond the burst, pauses are longer: so many end in a second.
	rejectedPerSecond, rejectedBurst = 50, 200
)

// reject returns the memory after a request was rejected.
func (m objectMemory) reject(what deed, text string, all *rate.Limiter, now time.Time) objectMemory {
	if m.rejected != what {
		m.times = 0
	}
	m.refused, m.rejected = text, what
	m.again = now.Add(min(minRejectedPause<<min(m.times, 16), maxRejectedPause) + all.ReserveN(now, 1).DelayFrom(now))
	m.times++
	return m
}

// fail returns the memory after a request failed. The loop paces its retries.
func (m objectMemory) fail(text string) objectMemory {
	m.refused, m.rejected, m.times, m.again = text, "", 0, time.Time{}
	return m
}

// pause returns how long a rejected request must not be sent. It returns 0 if the request may be sent.
func (m objectMemory) pause(what deed, now time.Time) time.Duration {
	if m.rejected != what {
		return 0
	}
	return max(m.again.Sub(now), 0)
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

// owner is what is remembered of an owner, from now on if there is nothing, or it was deleted in another way.
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

// knownOwner is what is remembered of an owner, if anything is.
func (m *memories) knownOwner(key id) (ownerMemory, bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	memory, ok := m.owners[key]
	return memory, ok
}

// note keeps what is known of an owner, unless it has been forgotten meanwhile.
func (m *memories) note(key id, change func(*ownerMemory)) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if memory, ok := m.owners[key]; ok {
		change(&memory)
		m.owners[key] = memory
	}
}

// finishing returns every owner that is remembered: lists look for those that refer to one of them.
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

// setObject keeps what is known of an object; the zero memory forgets it.
func (m *memories) setObject(key id, memory objectMemory) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if memory == (objectMemory{}) {
		delete(m.objects, key)
		return
	}
	m.objects[key] = memory
}

// prune forgets owners that are no longer seen, and objects of whose owners there is no doubt any more, unless their back-off goes on: they may be dependents
// that only lists have shown.
func (m *memories) prune(seen, doubted func(id) bool, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for key := range m.owners {
		if !seen(key) {
			delete(m.owners, key)
		}
	}
	for key, memory := range m.objects {
		if !doubted(key) && !memory.again.After(now) {
			delete(m.objects, key)
		}
	}
}

// standstill is for how long the owner has been held by as many dependents, and as many types, for which that is longest.
func (m *memories) standstill(now time.Time) (longest time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, memory := range m.owners {
		if memory.why != "" && !memory.moved.IsZero() {
			longest = max(longest, now.Sub(memory.moved))
		}
	}
	return longest
}

// count is how many owners and objects are held, by cause.
func (m *memories) count() map[string]int {
	m.lock.Lock()
	defer m.lock.Unlock()
	causes := map[string]int{}
	for _, memory := range m.owners {
		if memory.why != "" {
			causes[string(memory.why)]++
		}
	}
	for _, memory := range m.objects {
		if memory.held != "" {
			causes[memory.held]++
		}
		if memory.rejected != "" {
			causes[string(byRejection)]++
		}
	}
	return causes
}
