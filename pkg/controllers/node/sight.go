package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// sight knows whether silence means anything. Three things can make it meaningless.
//
// Blind: kubelets could not tell us, because requests fail. It starts at the last moment at which we certainly saw, ends with
// any Lease event or success, and is then credited to every node.
//
// Stale: the Lease cache is behind what a live read showed. It ends when the cache has caught up. While it lasts, whole lists of
// Leases take the place of the watch.
//
// Stalled: this process, or the machine with all that is on it, stood still. The late tick gives nodes the time back; whoever
// wakes up before it must wait for it.
type sight struct {
	grace time.Duration

	lock      sync.Mutex
	probing   bool      // somebody asks the API server when Leases are quiet: only within a term
	lastEvent time.Time // of any Lease
	lastSeen  time.Time // event, or read that succeeded
	blind     *blindness
	byWrite   time.Time // when the last failing write made us blind; reads that succeed prove nothing then
	ended     []blindness
	stale     staleness
	lastTick  time.Time
}

const (
	tickPeriod = time.Second
	// stallAfter is how late a tick may be.
	stallAfter = 5 * time.Second
)

// staleness of the Lease cache. The zero value is a cache that is good enough.
type staleness struct {
	since  time.Time
	target string // resource version to reach
	fed    time.Time
}

// cause says why verdicts are suspended; it is a label value.
type cause string

const (
	causeNone  cause = ""
	causeBlind cause = "blind"
	causeStale cause = "stale_cache"
)

func newSight(grace time.Duration, now time.Time) *sight {
	return &sight{grace: grace, lastEvent: now, lastSeen: now}
}

// quiet is how long no Lease event is normal: half a grace period.
func (s *sight) quiet() time.Duration { return s.grace / 2 }

// event notes a Lease event, whoever's the Lease: the watch works, and the API server accepts writes. When nobody probes, a
// long quiet before the event may have been an outage and counts as one.
func (s *sight) event(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.probing && now.Sub(s.lastEvent) > s.quiet() {
		s.startBlind()
	}
	s.endBlind(now)
	s.lastEvent, s.lastSeen = now, now
}

// begin starts a term. What happened before, with nobody probing, is settled.
func (s *sight) begin(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if now.Sub(s.lastEvent) > s.quiet() {
		s.startBlind()
	}
	s.endBlind(now)
	s.probing, s.lastSeen, s.lastTick = true, now, now
}

// tick is called every tickPeriod of a term. It returns for how long everything stood still, zero if the tick is in time.
func (s *sight) tick(now time.Time) (stall time.Duration) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.isStalled(now) {
		stall = now.Sub(s.lastTick)
	}
	s.lastTick = now
	return stall
}

func (s *sight) isStalled(now time.Time) bool {
	return s.probing && now.Sub(s.lastTick) > tickPeriod+stallAfter
}

// end ends a term.
func (s *sight) end() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.probing = false
}

// readSucceeded notes a consistent read.
func (s *sight) readSucceeded(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lastSeen = now
	if s.byWrite.IsZero() || now.Sub(s.byWrite) > s.grace {
		s.endBlind(now) // after a failed write: the next write will tell
	}
}

// wrote notes a write that the API server accepted.
func (s *sight) wrote(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lastSeen = now
	s.endBlind(now)
}

// failed notes a request that failed. write tells that it would have changed something.
func (s *sight) failed(err error, write bool, now time.Time) {
	if !blinding(err) {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if write {
		s.byWrite = now
	}
	s.startBlind()
}

func (s *sight) startBlind() {
	if s.blind == nil {
		s.blind = &blindness{since: s.lastEvent}
	}
}

func (s *sight) endBlind(now time.Time) {
	if s.blind == nil {
		return
	}
	s.blind.until = now
	s.ended = append(s.ended, *s.blind)
	s.blind, s.byWrite = nil, time.Time{}
}

// behind notes that a live read showed what the Lease cache does not, at a resource version.
func (s *sight) behind(version string, now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.stale.target == "" {
		s.stale = staleness{since: now, target: version}
	} else if !reached(s.stale.target, version) {
		s.stale.target = version
	}
}

// caughtUp compares the version of the Lease cache with the one to reach.
func (s *sight) caughtUp(version string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.stale.target != "" && reached(version, s.stale.target) {
		s.stale = staleness{}
	}
}

// fed notes that a whole list of Leases was taken in.
func (s *sight) fed(now time.Time) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.stale.fed = now
}

// suspended says why no verdict may be passed, no taint added and no zone changed; causeNone is that all may be done.
func (s *sight) suspended(period time.Duration, now time.Time) cause {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.isStalled(now), s.blind != nil, len(s.ended) > 0: // credits not yet given
		return causeBlind
	case s.stale.target != "" && !s.isFed(period, now):
		return causeStale
	}
	return causeNone
}

// isFed tells that the cache has been stale for so long that lists are made, and that the last one is fresh.
func (s *sight) isFed(period time.Duration, now time.Time) bool {
	return now.Sub(s.stale.since) > s.grace && now.Sub(s.stale.fed) < 2*period+time.Second
}

// errand is what the API server should be asked now.
type errand int

const (
	noErrand errand = iota
	probe           // does it answer?
	feed            // all Leases, because the watch is stuck
)

func (s *sight) errand(period time.Duration, now time.Time) errand {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.stale.target != "" && now.Sub(s.stale.since) > s.grace && now.Sub(s.stale.fed) >= period:
		return feed
	case s.blind != nil, now.Sub(s.lastSeen) > max(s.quiet(), period):
		return probe
	}
	return noErrand
}

// credits returns the blind times that have ended and not been credited yet. It does not forget them: see credited.
func (s *sight) credits() []blindness {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]blindness(nil), s.ended...)
}

// credited forgets the first n blind times.
func (s *sight) credited(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.ended = s.ended[n:]
}

// blinding reports whether an error may mean that kubelets cannot reach the API server either: it gave no answer, or said that
// it was not able to. An answer about the object (not found, conflict, forbidden) is an answer; the end of a term is none.
func blinding(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// reached reports whether a resource version is at least another. Versions that cannot be compared count as reached: waiting for
// them would have no end.
func reached(have, want string) bool {
	order, err := resourceversion.CompareResourceVersion(have, want)
	return err != nil || order >= 0
}
