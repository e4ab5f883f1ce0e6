package node

import (
	"slices"
	"sync"
	"time"
)

// lookAhead is how long a node waits that was refused its taint because its zone is about to change state.
const lookAhead = time.Second

// zones keeps the nodes of each zone, the state of each zone and the line of nodes that wait for a NoExecute taint. It lives
// for one term. Counts follow at once what is known about each node; states and rates follow the counts except while frozen.
type zones struct {
	cfg     Config
	metrics *metrics

	lock    sync.Mutex
	homes   map[string]string // node → zone
	zones   map[string]*zone
	stopped bool // every zone that counts has failed: the trouble is likely ours, or the network's
	frozen  bool
}

type zone struct {
	members map[string]member
	tally   tally
	state   zoneState
	limiter limiter
	waiting []string // nodes that need a taint, first come first served
	shown   display
}

// display is what the gauges show of a zone. They are set when it changes, because there may be as many zones as nodes.
type display struct {
	tally   tally
	state   zoneState
	waiting int
}

// member is what a zone needs to know of a node.
type member struct{ counted, ready bool }

// effects are the nodes to look at again because of a change.
type effects struct {
	all     bool                 // every node: tainting has been stopped or resumed
	resumed bool                 // tainting has been resumed
	wake    map[string]time.Time // nodes in line and when to look at them
}

func newZones(cfg Config, m *metrics) *zones {
	return &zones{cfg: cfg, metrics: m, homes: map[string]string{}, zones: map[string]*zone{}}
}

// put takes in where a node is and how it is.
func (z *zones) put(name, key string, m member, now time.Time) effects {
	z.lock.Lock()
	defer z.lock.Unlock()
	home, known := z.homes[name]
	switch {
	case known && home == key && z.zones[key].members[name] == m:
		return effects{}
	case known && home == key:
		z.zones[key].subtract(name)
	case known:
		z.remove(name)
	}
	z.zone(key, now).add(name, m)
	z.homes[name] = key
	return z.evaluate(now)
}

// zone returns the zone of a key, a new one if need be.
func (z *zones) zone(key string, now time.Time) *zone {
	in, ok := z.zones[key]
	if !ok {
		in = &zone{members: map[string]member{}, state: zoneNormal, limiter: newLimiter(z.cfg.EvictionRate, now)}
		z.zones[key] = in
		z.metrics.evictions.WithLabelValues(key)
	}
	return in
}

// drop forgets a node.
func (z *zones) drop(name string, now time.Time) effects {
	z.lock.Lock()
	defer z.lock.Unlock()
	if _, ok := z.homes[name]; !ok {
		return effects{}
	}
	z.remove(name)
	return z.evaluate(now)
}

// remove takes a node out of its zone, which is forgotten with its last node.
func (z *zones) remove(name string) {
	home := z.homes[name]
	out := z.zones[home]
	delete(z.homes, name)
	out.subtract(name)
	out.leave(name)
	if len(out.members) == 0 {
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
func (z *zones) freeze(frozen bool, now time.Time) effects {
	z.lock.Lock()
	defer z.lock.Unlock()
	if z.frozen == frozen {
		return effects{}
	}
	z.frozen = frozen
	e := z.evaluate(now)
	if !frozen { // a rate that is as it was wakes nobody, but those who asked meanwhile were told that somebody would
		for _, in := range z.zones {
			in.call(&e)
		}
	}
	return e
}

// evaluate lets states and rates follow the counts. The caller holds the lock.
func (z *zones) evaluate(now time.Time) effects {
	e := effects{wake: map[string]time.Time{}}
	if !z.frozen {
		for _, in := range z.zones {
			in.state = in.tally.state(z.cfg)
		}
		was := z.stopped
		z.stopped = z.allFull(func(in *zone) zoneState { return in.state })
		e.all, e.resumed = z.stopped != was, was && !z.stopped
		for _, in := range z.zones {
			z.setRate(in, now, &e)
		}
	}
	for key, in := range z.zones {
		z.show(key, in)
	}
	return e
}

func (z *zones) show(key string, in *zone) {
	if now := (display{in.tally, in.state, len(in.waiting)}); in.shown != now {
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
	in.call(e)
}

// call wakes each node in line for its turn, unless the zone is blocked.
func (in *zone) call(e *effects) {
	if in.limiter.rate == 0 {
		return
	}
	for p, name := range in.waiting {
		e.wake[name] = in.limiter.slot(p)
	}
}

// allFull reports whether every zone with nodes that count has failed. No such zone is no failure.
func (z *zones) allFull(state func(*zone) zoneState) bool {
	counted := false
	for _, in := range z.zones {
		if in.tally.size() == 0 {
			continue
		}
		counted = true
		if state(in) != zoneFull {
			return false
		}
	}
	return counted
}

// isStopped reports whether no node may have a NoExecute taint of ours.
func (z *zones) isStopped() bool {
	z.lock.Lock()
	defer z.lock.Unlock()
	return z.stopped
}

// ask is the last thing a node does that needs a NoExecute taint. Granted, a token is spent. Refused, the node stands in line and
// asks again after wait; zero means that it will be woken. lagging tells nodes that are ready but about to be found silent: while
// they would change the state of the zone, nobody is tainted in it.
func (z *zones) ask(name string, lagging func(string) bool, now time.Time) (granted bool, wait time.Duration, e effects) {
	z.lock.Lock()
	defer z.lock.Unlock()
	in := z.zones[z.homes[name]]
	if in == nil {
		return false, lookAhead, e
	}
	p := slices.Index(in.waiting, name)
	if p < 0 {
		p = len(in.waiting)
		in.waiting = append(in.waiting, name)
		z.show(z.homes[name], in)
	}
	if z.frozen || in.limiter.rate == 0 {
		return false, 0, e
	}
	if slot := in.limiter.slot(p); now.Before(slot) {
		return false, slot.Sub(now), e
	}
	if z.changing(in, lagging) {
		return false, lookAhead, e
	}
	in.limiter.take(now)
	return true, 0, z.quit(name)
}

// changing reports whether a zone, or the cluster, would change state if the nodes that lag were found silent.
func (z *zones) changing(in *zone, lagging func(string) bool) bool {
	ahead := func(in *zone) zoneState { return in.without(lagging).state(z.cfg) }
	if ahead(in) != in.state {
		return true
	}
	return in.state == zoneFull && !z.stopped && z.allFull(ahead)
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
func (z *zones) withdraw(name string) effects {
	z.lock.Lock()
	defer z.lock.Unlock()
	return z.quit(name)
}

// refund gives back the token of a taint that was not written. The node asks again, behind all others.
func (z *zones) refund(name string, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if in := z.zones[z.homes[name]]; in != nil {
		in.limiter.next = now
	}
}

// quit takes a node out of the line and wakes the new head for its turn.
func (z *zones) quit(name string) effects {
	in := z.zones[z.homes[name]]
	if in == nil || !in.leave(name) {
		return effects{}
	}
	z.show(z.homes[name], in)
	if len(in.waiting) == 0 || in.limiter.rate == 0 {
		return effects{}
	}
	return effects{wake: map[string]time.Time{in.waiting[0]: in.limiter.slot(0)}}
}

func (in *zone) leave(name string) bool {
	p := slices.Index(in.waiting, name)
	if p >= 0 {
		in.waiting = slices.Delete(in.waiting, p, p+1)
	}
	return p >= 0
}
