package node

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/outcome"
)

// lookAhead is how long a node waits before it asks again for a taint that it was refused because its zone may be about to change state, see zones.holds.
// A forecast of the state of a zone is good for as long, but for no more than one part in lookAheadShare of the grace period.
const (
	lookAhead      = time.Second
	lookAheadShare = 50
)

// zones keeps the nodes of each zone, the state of each zone and the line of nodes that wait for a NoExecute taint. It lives
// for one term. Counts follow at once what is known about each node; states and rates follow the counts except while frozen.
// There may be as many zones as nodes, so a change of one node touches its own zone only.
type zones struct {
	cfg     Config
	metrics *metrics

	lock    sync.Mutex
	homes   map[string]string // node → zone
	zones   map[string]*zone
	counted int  // zones that have nodes which count
	full    int  // those of them that have failed
	stopped bool // every zone that counts has failed: the trouble is likely ours, or the network's
	frozen  bool
}

type zone struct {
	members  map[string]member
	tally    tally
	known    tally // as of the state, which does not follow while frozen
	state    zoneState
	limiter  limiter
	waiting  waitlist
	forecast forecast
	shown    display

	unanswered string // the last node that lost its token to a patch without an answer
}

// forecast is what a zone is about to become: the state it would have if the nodes that lag were found silent.
type forecast struct {
	at    time.Time // when it was looked at
	state zoneState

	held     bool      // nobody is tainted because of it
	notReady int       // if held: the most nodes that were found not Ready since
	nearer   time.Time // if held: when that number last grew
}

// display is what the gauges show of a zone. They are set when it changes.
type display struct {
	tally   tally
	state   zoneState
	waiting int
}

// member is what a zone needs to know of a node.
type member struct{ counted, ready bool }

func memberOf(node *corev1.Node) member {
	_, excluded := node.Labels[excludeLabel]
	return member{counted: !excluded, ready: readiness(node) == corev1.ConditionTrue}
}

// effects are the nodes to look at again because of a change.
type effects struct {
	all     bool                 // every node: tainting has been stopped or resumed
	resumed bool                 // tainting has been resumed
	wake    map[string]time.Time // nodes in line and when to look at them
}

func (e *effects) wakeAt(name string, at time.Time) {
	if e.wake == nil {
		e.wake = map[string]time.Time{}
	}
	e.wake[name] = at
}

func newZones(cfg Config, m *metrics) *zones {
	return &zones{cfg: cfg, metrics: m, homes: map[string]string{}, zones: map[string]*zone{}}
}

// begin takes in all nodes before the first is judged, so that no zone looks worse or better than it is.
func (z *zones) begin(nodes []*corev1.Node, now time.Time) {
	z.freeze(true, now)
	for _, node := range nodes {
		z.put(node.Name, zoneOf(node), memberOf(node), now)
	}
	z.freeze(false, now)
}

// names are the nodes that are in a zone.
func (z *zones) names() []string {
	z.lock.Lock()
	defer z.lock.Unlock()
	return slices.Collect(maps.Keys(z.homes))
}

// put takes in where a node is and how it is.
func (z *zones) put(name, key string, m member, now time.Time) (e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	home, known := z.homes[name]
	switch {
	case known && home == key && z.zones[key].members[name] == m:
		return e
	case known && home == key:
		z.zones[key].subtract(name)
	case known:
		z.remove(name, home, &e)
	}
	z.zone(key, now).add(name, m)
	z.homes[name] = key
	z.evaluate(now, &e, home, key)
	return e
}

// zone returns the zone of a key, a new one if need be.
func (z *zones) zone(key string, now time.Time) *zone {
	in, ok := z.zones[key]
	if !ok {
		in = &zone{members: map[string]member{}, state: zoneNormal, limiter: newLimiter(z.cfg.EvictionRate, now), waiting: newWaitlist()}
		z.zones[key] = in
		z.metrics.evictions.WithLabelValues(key)
	}
	return in
}

// drop forgets a node.
func (z *zones) drop(name string, now time.Time) (e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if home, ok := z.homes[name]; ok {
		z.remove(name, home, &e)
		z.evaluate(now, &e, home)
	}
	return e
}

// remove takes a node out of its zone, which is forgotten with its last node.
func (z *zones) remove(name, home string, e *effects) {
	out := z.zones[home]
	delete(z.homes, name)
	out.subtract(name)
	z.quit(out, name, e)
	if len(out.members) == 0 {
		z.note(out, tally{}, zoneNormal) // also while frozen: a zone without nodes cannot be one that has failed
		delete(z.zones, home)
		z.metrics.zone(home, tally{}, zoneNormal, 0)
	}
}

func (in *zone) add(name string, m member) {
	in.members[name] = m
	in.count(m, 1)
}

func (in *zone) subtract(name string) {
	in.count(in.members[name], -1)
	delete(in.members, name)
}

func (in *zone) count(m member, by int) {
	switch {
	case m.counted && m.ready:
		in.tally.ready += by
	case m.counted:
		in.tally.notReady += by
	}
}

// freeze stops the states from following the counts, or lets them catch up.
func (z *zones) freeze(frozen bool, now time.Time) (e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if z.frozen == frozen {
		return e
	}
	z.frozen = frozen
	z.evaluate(now, &e, slices.Collect(maps.Keys(z.zones))...)
	for _, in := range z.zones {
		in.forecast.at = time.Time{} // nodes may have seemed to lag because we were blind; for how long they have held it up is not forgotten
		if !frozen {
			in.wakeAll(&e) // nodes that asked while the zone was frozen wait to be woken, and only a change of the rate would wake them
		}
	}
	return e
}

// evaluate lets the states and rates of the zones touched, some of which may be gone, follow their counts. The caller holds the lock.
func (z *zones) evaluate(now time.Time, e *effects, touched ...string) {
	if !z.frozen {
		for _, key := range touched {
			if in := z.zones[key]; in != nil {
				z.note(in, in.tally, in.tally.state(z.cfg))
			}
		}
		z.weigh(now, e)
	}
	for _, key := range touched {
		if in := z.zones[key]; in != nil {
			if !z.frozen {
				z.setRate(in, now, e)
			}
			z.show(key, in)
		}
	}
}

// note sets the state of a zone and keeps count of the zones that have failed.
func (z *zones) note(in *zone, t tally, s zoneState) {
	z.counted += number(t.size() > 0) - number(in.known.size() > 0)
	z.full += number(t.size() > 0 && s == zoneFull) - number(in.known.size() > 0 && in.state == zoneFull)
	if s != in.state {
		in.forecast.at = time.Time{}
	}
	in.known, in.state = t, s
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// weigh stops or resumes tainting in all zones. That every zone has failed takes at least one that counts.
func (z *zones) weigh(now time.Time, e *effects) {
	was := z.stopped
	z.stopped = z.counted > 0 && z.full == z.counted
	if z.stopped == was {
		return
	}
	e.all, e.resumed = true, was
	for _, in := range z.zones {
		z.setRate(in, now, e)
	}
}

func (z *zones) show(key string, in *zone) {
	if now := (display{in.tally, in.state, in.waiting.len()}); in.shown != now {
		in.shown = now
		z.metrics.zone(key, now.tally, now.state, now.waiting)
	}
}

func (z *zones) setRate(in *zone, now time.Time, e *effects) {
	r := rate(in.state, in.tally, z.cfg)
	if z.stopped {
		r = 0
	}
	if in.limiter.rate == r {
		return
	}
	in.limiter.set(r, now)
	in.wakeAll(e)
}

// wakeAll wakes each node in line for its turn, unless the zone is blocked.
func (in *zone) wakeAll(e *effects) {
	if in.limiter.rate == 0 {
		return
	}
	for p, name := range in.waiting.all() {
		e.wakeAt(name, in.limiter.slot(p))
	}
}

// isStopped reports whether no node may have a NoExecute taint of ours.
func (z *zones) isStopped() bool {
	z.lock.Lock()
	defer z.lock.Unlock()
	return z.stopped
}

// ask asks for the token that a NoExecute taint of a node takes. If it is not granted, the node stands in line and has to ask again after wait;
// zero means that it will be woken. While the zones are frozen only an exhausted node may be granted one. lagging tells which nodes that are counted as Ready
// may not be so: while they would change the state of the zone, nobody is tainted in it, until a grace period has brought no verdict more.
func (z *zones) ask(name string, exhausted bool, lagging func(string) bool, now time.Time) (granted bool, wait time.Duration, e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	key := z.homes[name]
	in := z.zones[key]
	if in == nil {
		return false, lookAhead, e
	}
	p := in.waiting.join(name)
	z.show(key, in)
	if z.frozen && !exhausted || in.limiter.rate == 0 {
		return false, 0, e
	}
	if slot := in.limiter.slot(p); now.Before(slot) {
		return false, slot.Sub(now), e
	}
	if z.holds(in, lagging, now) {
		return false, lookAhead, e
	}
	in.limiter.take(now)
	z.quit(in, name, &e)
	z.show(key, in)
	return true, 0, e
}

// holds reports whether nobody is tainted in a zone because it, or the cluster, would change state if the nodes that lag were found silent.
// What has not come nearer for a grace period is not about to: a slow API server makes verdicts slow, not wrong.
func (z *zones) holds(in *zone, lagging func(string) bool, now time.Time) bool {
	changes := z.ahead(in, lagging, now) != in.state || in.state == zoneFull && !z.stopped && z.allFull(lagging, now)
	switch {
	case !changes:
		in.forecast.held = false
	case !in.forecast.held || in.tally.notReady > in.forecast.notReady:
		in.forecast.held, in.forecast.notReady, in.forecast.nearer = true, in.tally.notReady, now
	}
	return changes && now.Sub(in.forecast.nearer) < z.cfg.MonitorGracePeriod
}

// allFull reports whether every zone with nodes that count is about to have failed.
func (z *zones) allFull(lagging func(string) bool, now time.Time) bool {
	for _, in := range z.zones {
		if in.tally.size() > 0 && z.ahead(in, lagging, now) != zoneFull {
			return false
		}
	}
	return true
}

// ahead is the state a zone is about to have.
func (z *zones) ahead(in *zone, lagging func(string) bool, now time.Time) zoneState {
	if age := now.Sub(in.forecast.at); age < 0 || age >= min(lookAhead, z.cfg.MonitorGracePeriod/lookAheadShare) {
		in.forecast.at, in.forecast.state = now, in.without(lagging).state(z.cfg)
	}
	return in.forecast.state
}

func (in *zone) without(lagging func(string) bool) tally {
	t := in.tally
	for name, m := range in.members {
		if m.counted && m.ready && lagging(name) {
			t.ready--
			t.notReady++
		}
	}
	return t
}

// withdraw takes a node out of the line: it needs no taint any more.
func (z *zones) withdraw(name string) (e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if in := z.zones[z.homes[name]]; in != nil {
		z.quit(in, name, &e)
		z.show(z.homes[name], in)
	}
	return e
}

// refund gives back the token of a taint that was not written, as if it had not been taken. After a conflict the node keeps its turn,
// otherwise it waits behind all others. A node whose patch got no answer keeps its turn once; its token is spent.
func (z *zones) refund(name string, result outcome.Outcome) (e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	in := z.zones[z.homes[name]]
	if in == nil {
		return e
	}
	if result != outcome.Unknown {
		in.limiter.next = in.limiter.before
	}
	if result == outcome.Conflict || result == outcome.Unknown && in.unanswered != name {
		in.waiting.rejoin(name) // the loop retries it
	} else {
		in.wakeFirst(&e)
	}
	in.unanswered = ""
	if result == outcome.Unknown {
		in.unanswered = name
	}
	return e
}

// quit takes a node out of the line. If it was the first, it wakes the one who is then.
func (z *zones) quit(in *zone, name string, e *effects) {
	first := in.waiting.first() == name
	if in.waiting.leave(name) && first {
		in.wakeFirst(e)
	}
}

// wakeFirst wakes the first in line for its turn, unless the zone is blocked.
func (in *zone) wakeFirst(e *effects) {
	if first := in.waiting.first(); first != "" && in.limiter.rate > 0 {
		e.wakeAt(first, in.limiter.slot(0))
	}
}
