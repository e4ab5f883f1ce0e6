package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"minikcm/pkg/answer"
)

// visibility knows whether silence means anything. Three things can make it meaningless.
//
// Blind: kubelets could not tell us, because requests fail. It starts at the last moment at which we certainly saw, ends with
// any Lease event or success, and is then credited to every node. One object of which a request fails is a suspicion and no more: a
// webhook may refuse it, or it cannot be decoded. It takes a second one, a probe, or a long quiet; and once others' requests have
// succeeded, the trouble is that object's own until one of its own does.
//
// Stale: the Lease cache is behind what a live read showed. It ends when the cache has caught up. While it lasts, whole lists of
// Leases take the place of the watch.
//
// Stalled: this process, or the machine with all that is on it, stood still. The late tick gives nodes the time back; whoever
// wakes up before it must wait for it.
type visibility struct {
	grace time.Duration

	lock      sync.Mutex
	probing   bool      // somebody asks the API server when Leases are quiet: only within a term
	lastEvent time.Time // of any Lease
	lastSeen  time.Time // event, or read that succeeded
	blind     *blindness
	byWrite   time.Time // when the last failing write made us blind; reads that succeed prove nothing then
	ended     []blindness
	troubles  map[request]bool // of which the last request failed; true: the trouble is its own
	stale     staleness
	lastTick  time.Time
	recent    map[cause]bool // causes that arose since the last tick
}

// request is what a request is about. Reading an object and writing it fail for different reasons.
type request struct {
	what  string
	write bool
}

func reading(kind, name string) request { return request{what: kind + " " + name} }

func writing(kind, name string) request { return request{what: kind + " " + name, write: true} }

const (
	tickPeriod = time.Second
	// stallAfter is how late a tick may be.
	stallAfter = 5 * time.Second
)

// staleness of the Lease cache. The zero value is a cache that is good enough.
type staleness struct {
	since  time.Time
	target string // resource version to reach
	listed time.Time
	took   time.Duration // the last list
}

// cause says why verdicts are suspended; it is a label value.
type cause string

const (
	causeNone  cause = ""
	causeBlind cause = "blind"
	causeStale cause = "stale_cache"
)

func newVisibility(grace time.Duration, now time.Time) *visibility {
	return &visibility{grace: grace, lastEvent: now, lastSeen: now, troubles: map[request]bool{}, recent: map[cause]bool{}}
}

// quiet is how long no Lease event is normal: half a grace period.
func (s *visibility) quiet() time.Duration { return s.grace / 2 }

// event notes a Lease event, whoever's the Lease: the watch works, and the API server accepts writes. When nobody probes, a
// long quiet before the event may have been an outage and counts as one.
func (s *visibility) event(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.probing && now.Sub(s.lastEvent) > s.quiet() {
		s.startBlind()
	}
	s.endBlind(now)
	s.absolve(request{write: true})
	s.lastEvent, s.lastSeen = now, now
}

// begin starts a term. What happened before, with nobody probing, is settled.
func (s *visibility) begin(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if now.Sub(s.lastEvent) > s.quiet() {
		s.startBlind()
	}
	s.endBlind(now)
	clear(s.troubles)
	s.probing, s.lastSeen, s.lastTick = true, now, now
}

// tick is called every tickPeriod of a term. It returns for how long everything stood still, zero if the tick is in time.
func (s *visibility) tick(now time.Time) (stall time.Duration) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.isStalled(now) {
		stall = now.Sub(s.lastTick)
	}
	s.lastTick = now
	return stall
}

func (s *visibility) isStalled(now time.Time) bool {
	return s.probing && now.Sub(s.lastTick) > tickPeriod+stallAfter
}

// end ends a term.
func (s *visibility) end() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.probing = false
}

// readSucceeded notes a consistent read of something.
func (s *visibility) readSucceeded(of request, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lastSeen = now
	s.absolve(of)
	if s.byWrite.IsZero() || now.Sub(s.byWrite) > s.grace {
		s.endBlind(now) // after a failed write: the next write will tell
	}
}

// wrote notes a write that the API server accepted.
func (s *visibility) wrote(what request, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lastSeen = now
	s.absolve(what)
	s.endBlind(now)
}

// absolve takes in a request that succeeded: what failed before it, of the same kind or a lesser, has its trouble to itself.
func (s *visibility) absolve(by request) {
	if len(s.troubles) == 0 {
		return
	}
	delete(s.troubles, by)
	for of := range s.troubles {
		if by.write || !of.write {
			s.troubles[of] = true
		}
	}
}

// failed notes a request that failed.
func (s *visibility) failed(of request, err error, now time.Time) {
	if !blinding(err) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.troubles[of] {
		return
	}
	s.troubles[of] = false
	if s.suspects() < 2 && now.Sub(s.lastEvent) <= s.quiet() {
		return
	}
	if of.write {
		s.byWrite = now
	}
	s.startBlind()
}

// suspects counts the objects of which a request failed when nothing has succeeded since.
func (s *visibility) suspects() (n int) {
	for _, own := range s.troubles {
		if !own {
			n++
		}
	}
	return n
}

// probeFailed notes that the API server did not answer when it was asked for next to nothing.
func (s *visibility) probeFailed(err error) {
	if !blinding(err) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.startBlind()
}

// forget drops the troubles of a node that is gone.
func (s *visibility) forget(node string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for of := range s.troubles {
		if strings.HasSuffix(of.what, " "+node) {
			delete(s.troubles, of)
		}
	}
}

func (s *visibility) startBlind() {
	s.recent[causeBlind] = true
	if s.blind == nil {
		s.blind = &blindness{since: s.lastEvent}
	}
}

func (s *visibility) endBlind(now time.Time) {
	if s.blind == nil {
		return
	}
	s.blind.until = now
	s.ended = append(s.ended, *s.blind)
	s.blind, s.byWrite = nil, time.Time{}
}

// behind notes that a live read showed what the Lease cache does not, at a resource version.
func (s *visibility) behind(version string, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.recent[causeStale] = true
	if s.stale.target == "" {
		s.stale = staleness{since: now, target: version}
	} else if !reached(s.stale.target, version) {
		s.stale.target = version
	}
}

// caughtUp compares the version of the Lease cache with the one to reach.
func (s *visibility) caughtUp(version string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.stale.target != "" && reached(version, s.stale.target) {
		s.stale = staleness{}
	}
}

// listed notes that a whole list of Leases was taken in, and how long it took.
func (s *visibility) listed(now time.Time, took time.Duration) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.stale.listed, s.stale.took = now, took
}

// suspended says why no verdict may be passed, no taint added and no zone changed; causeNone is that all may be done. exhausted is a
// node that has been given all the time that blindness may give: only the tick that may give it back a standstill holds it up.
func (s *visibility) suspended(exhausted bool, period time.Duration, now time.Time) cause {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.isStalled(now):
		return causeBlind
	case exhausted:
		return causeNone
	case s.blind != nil, len(s.ended) > 0: // credits not yet given
		return causeBlind
	case s.stale.target != "" && !s.isListed(period, now):
		return causeStale
	}
	return causeNone
}

// isListed tells that the cache has been stale for so long that lists are made, and that the last one is fresh.
func (s *visibility) isListed(period time.Duration, now time.Time) bool {
	return now.Sub(s.stale.since) > s.grace && now.Sub(s.stale.listed) < 2*period+s.stale.took+time.Second
}

// causes returns those for which verdicts were suspended since it was last called, for however short a time. why is the present one.
func (s *visibility) causes(why cause) map[cause]bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	recent := s.recent
	s.recent = map[cause]bool{}
	recent[why] = true
	return recent
}

// remedy is what the API server should be asked now.
type remedy int

const (
	noRemedy remedy = iota
	probe           // does it answer?
	relist          // all Leases, because the watch is stuck
)

func (s *visibility) remedy(period time.Duration, now time.Time) remedy {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.stale.target != "" && now.Sub(s.stale.since) > s.grace && now.Sub(s.stale.listed) >= period:
		return relist
	case s.blind != nil, now.Sub(s.lastSeen) > max(s.quiet(), period), s.doubtful():
		return probe
	}
	return noRemedy
}

// doubtful reports whether a read has failed and nothing has been read since.
func (s *visibility) doubtful() bool {
	for of, own := range s.troubles {
		if !of.write && !own {
			return true
		}
	}
	return false
}

// credits returns the blind times that have ended and not been credited yet. It does not forget them: see credited.
func (s *visibility) credits() []blindness {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]blindness(nil), s.ended...)
}

// credited forgets the first n blind times.
func (s *visibility) credited(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.ended = s.ended[n:]
}

// blinding reports whether an error may mean that kubelets cannot reach the API server either: it gave no answer, or said that
// it was not able to. An answer about the object (not found, conflict, forbidden) is an answer; the end of a term is none.
func blinding(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), rateLimited) {
		return false
	}
	return answer.Unable(err)
}

// rateLimited is how client-go v0.37 begins the error of a request that its own limiter did not let pass. It has no type.
const rateLimited = "client rate limiter Wait returned an error"

// reached reports whether a resource version is at least another. Versions that cannot be compared count as reached: waiting for
// them would have no end.
func reached(have, want string) bool {
	order, err := resourceversion.CompareResourceVersion(have, want)
	return err != nil || order >= 0
}
