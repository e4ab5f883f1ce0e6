package node

import (
	"slices"
	"sync"
	"time"

	"minikcm/internal/rv"
)

// visibility is whether signs of life would reach us, if kubelets gave any. It makes no requests: it is told of Lease events, of requests
// and of ticks, and asked for a verdict. Three things make silence meaningless.
//
// Blind: requests fail, so kubelets' requests may fail as well. Blindness starts at the last moment at which we certainly saw, ends with any
// Lease event or success, which must be of a write if writes failed, and is then credited to every node. Failed requests make us blind only after a long quiet: as long as
// Leases are renewed, kubelets reach the API server, and the cause is the object or a webhook. A failed probe makes us blind at once.
//
// Stale: the Lease cache is behind what a live read showed. Staleness ends when the cache has caught up. While it lasts, lists of all Leases
// take the place of the watch.
//
// Stalled: this process, or the machine with all that is on it, stood still. The late tick gives nodes the time back; whoever
// wakes up before the tick must wait for it.
type visibility struct {
	grace, period, quiet time.Duration // quiet: how long no Lease event is normal

	lock      sync.Mutex
	probing   bool      // somebody asks the API server when Leases are quiet: only within a term
	lastEvent time.Time // of any Lease
	lastSeen  time.Time // event, or read that succeeded
	blind     *blindness
	byWrite   time.Time // if a failing write made us blind: when one was last tried; reads that succeed prove nothing then
	ended     []blindness
	stale     staleness
	lastTick  time.Time
	recent    map[cause]bool // causes that arose since the last tick
}

const (
	tickPeriod = time.Second
	// stallAfter is how late a tick may be.
	stallAfter = 5 * time.Second
)

// cause says why verdicts are suspended; it is a label value.
type cause string

const (
	causeNone  cause = ""
	causeBlind cause = "blind"
	causeStale cause = "stale_cache"
)

// recheck is when to look again at a node that is held up.
func (c cause) recheck() time.Duration {
	if c == causeStale {
		return staleRecheck
	}
	return blindRecheck
}

// suppressed is how a verdict that was not passed is counted.
func (c cause) suppressed() string {
	if c == causeStale {
		return suppressedStale
	}
	return suppressedBlind
}

func newVisibility(cfg Config, now time.Time) *visibility {
	return &visibility{
		grace: cfg.MonitorGracePeriod, period: cfg.MonitorPeriod, quiet: cfg.MonitorGracePeriod / 2,
		lastEvent: now, lastSeen: now, recent: map[cause]bool{},
	}
}

// begin starts a term.
func (v *visibility) begin(now time.Time) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if now.Sub(v.lastEvent) > v.quiet {
		v.startBlind()
	}
	v.endBlind(now)
	v.probing, v.lastSeen, v.lastTick = true, now, now
}

// end ends a term.
func (v *visibility) end() {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.probing = false
}

// tick is called every tickPeriod of a term. It returns for how long everything stood still, zero if the tick is in time.
func (v *visibility) tick(now time.Time) (stall time.Duration) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if v.isStalled(now) {
		stall = now.Sub(v.lastTick)
	}
	v.lastTick = now
	return stall
}

func (v *visibility) isStalled(now time.Time) bool {
	return v.probing && now.Sub(v.lastTick) > tickPeriod+stallAfter
}

// event notes a Lease event, whoever's the Lease: the watch works, and the API server accepts writes. When nobody probes, a
// long quiet before the event may have been an outage and counts as one.
func (v *visibility) event(now time.Time) {
	v.lock.Lock()
	defer v.lock.Unlock()
	if !v.probing && now.Sub(v.lastEvent) > v.quiet {
		v.startBlind()
	}
	v.endBlind(now)
	if n := len(v.ended); !v.probing && n > 1 { // credits are given by the next term only
		first, before, last := v.ended[0], v.ended[n-2], v.ended[n-1]
		if last.since.Sub(before.until) <= v.grace { // else whoever was alive has been seen in between
			last.since = first.since
		}
		v.ended = []blindness{last}
	}
	v.lastEvent, v.lastSeen = now, now
}

// readSucceeded records a consistent read.
func (v *visibility) readSucceeded(now time.Time) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.lastSeen = now
	if v.byWrite.IsZero() { // else only a write can tell, see triesWrite
		v.endBlind(now)
	}
}

// wrote records a write that the API server accepted.
func (v *visibility) wrote(now time.Time) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.lastSeen = now
	v.endBlind(now)
}

// request is a kind of requests.
type request int

const (
	readRequest request = iota
	writeRequest
)

// failed records a request that failed.
func (v *visibility) failed(kind request, err error, now time.Time) {
	if !blinding(err) {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	if now.Sub(v.lastEvent) <= v.quiet {
		return
	}
	if kind == writeRequest {
		v.byWrite = now
	}
	v.startBlind()
}

// probeFailed notes that the API server did not answer when it was asked for next to nothing.
func (v *visibility) probeFailed(err error) {
	if !blinding(err) {
		return
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	v.startBlind()
}

func (v *visibility) startBlind() {
	v.recent[causeBlind] = true
	if v.blind == nil {
		v.blind = &blindness{since: v.lastEvent}
	}
}

func (v *visibility) endBlind(now time.Time) {
	if v.blind == nil {
		return
	}
	v.blind.until = now
	v.ended = append(v.ended, *v.blind)
	v.blind, v.byWrite = nil, time.Time{}
}

// credits returns the blind times that have ended and not been credited yet. It does not forget them: see credited.
func (v *visibility) credits() []blindness {
	v.lock.Lock()
	defer v.lock.Unlock()
	return slices.Clone(v.ended)
}

// credited forgets the first n blind times.
func (v *visibility) credited(n int) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.ended = v.ended[n:]
}

// behind notes that a live read showed what the Lease cache does not, at a resource version.
func (v *visibility) behind(version string, now time.Time) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.recent[causeStale] = true
	v.stale = v.stale.behind(version, now)
}

// caughtUp takes in the version that the Lease cache has reached.
func (v *visibility) caughtUp(version string) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.stale = v.stale.caughtUp(version)
}

// listed notes that a list of all Leases was taken in, and how long it took.
func (v *visibility) listed(now time.Time, took time.Duration) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.stale.listed, v.stale.took = now, took
}

// suspended says why no verdict may be passed, no taint added and no zone changed; causeNone is that all may be done. A node that is
// exhausted has been given all the time that blindness may give: it waits for nothing but the tick that may give it back a stall.
func (v *visibility) suspended(exhausted bool, now time.Time) cause {
	v.lock.Lock()
	defer v.lock.Unlock()
	switch {
	case v.isStalled(now):
		return causeBlind
	case exhausted:
		return causeNone
	case v.blind != nil, len(v.ended) > 0: // credits not yet given
		return causeBlind
	case v.stale.suspends(v.grace, v.period, now):
		return causeStale
	}
	return causeNone
}

// triesWrite reports whether a verdict may be passed although we are blind because writes failed. One in a grace period finds out whether the API
// server takes writes again: there may be nobody else who writes. Whoever is about to write claims it.
func (v *visibility) triesWrite(claim bool, now time.Time) bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	due := v.blind != nil && !v.byWrite.IsZero() && now.Sub(v.byWrite) > v.grace && !v.isStalled(now)
	if due && claim {
		v.byWrite = now
	}
	return due
}

// causes returns the causes of all suspensions since the last call, however short they were, and why, that of now.
func (v *visibility) causes(why cause) map[cause]bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	recent := v.recent
	v.recent = map[cause]bool{}
	recent[why] = true
	return recent
}

// remedy is what to ask the API server for, so that silence can be trusted again.
type remedy int

const (
	noRemedy remedy = iota
	probe           // next to nothing: does it answer?
	relist          // all Leases, because the watch is stuck
)

func (v *visibility) remedy(now time.Time) remedy {
	v.lock.Lock()
	defer v.lock.Unlock()
	switch {
	case v.stale.wantsList(v.grace, v.period, now):
		return relist
	case v.blind != nil, now.Sub(v.lastSeen) > max(v.quiet, v.period):
		return probe
	}
	return noRemedy
}

// staleness of the Lease cache. The zero value is a cache that is good enough.
type staleness struct {
	since  time.Time
	target string        // resource version to reach; empty: none
	listed time.Time     // when all Leases were last listed
	took   time.Duration // the last list
}

func (s staleness) behind(version string, now time.Time) staleness {
	if s.target == "" {
		return staleness{since: now, target: version}
	}
	if !reached(s.target, version) {
		s.target = version
	}
	return s
}

func (s staleness) caughtUp(version string) staleness {
	if s.target != "" && reached(version, s.target) {
		return staleness{}
	}
	return s
}

// isLong reports whether the cache has been stale for so long that lists take the place of the watch.
func (s staleness) isLong(grace time.Duration, now time.Time) bool {
	return s.target != "" && now.Sub(s.since) > grace
}

func (s staleness) wantsList(grace, period time.Duration, now time.Time) bool {
	return s.isLong(grace, now) && now.Sub(s.listed) >= period
}

// suspends reports whether the cache is stale and no fresh list takes its place.
func (s staleness) suspends(grace, period time.Duration, now time.Time) bool {
	isFresh := now.Sub(s.listed) < 2*period+s.took+time.Second
	return s.target != "" && !(s.isLong(grace, now) && isFresh)
}

// reached reports whether a resource version is at least another. Versions that cannot be compared count as reached: waiting for
// them would have no end.
func reached(have, want string) bool {
	return !rv.Newer(want, have)
}
