package node

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/outcome"
)

// zones counts the nodes of each zone and limits the rate of their NoExecute taints. Counts follow the nodes
// at once, states and rates follow the counts except while frozen. A zones value lives for one term.
type zones struct {
	cfg     Config
	metrics *metrics
	enqueue func(node string, after time.Duration) // queues a waiting node for its turn
	toggled func(stopped bool)                     // is called when tainting stops or resumes in all zones

	lock    sync.Mutex
	nodes   map[string]place
	zones   map[string]*zone
	stopped bool // every zone with counted nodes has failed: the cause is likely the network or the control plane
	frozen  bool
}

// place is the zone of a node and the part of the node in the counts.
type place struct {
	zone string
	member
}

type zone struct {
	nodes      int // excluded nodes included
	tally      tally
	state      zoneState
	limiter    limiter
	waiting    []string // nodes that wait for a taint, in order
	unanswered string   // the node whose last patch had no response and kept its turn
}

type member struct{ counted, ready bool }

func memberOf(node *corev1.Node) member {
	_, excluded := node.Labels[excludeLabel]
	return member{counted: !excluded, ready: readiness(node) == corev1.ConditionTrue}
}

func newZones(cfg Config, m *metrics, enqueue func(string, time.Duration), toggled func(bool)) *zones {
	return &zones{cfg: cfg, metrics: m, enqueue: enqueue, toggled: toggled, nodes: map[string]place{}, zones: map[string]*zone{}}
}

// begin counts all nodes before the first decision.
func (z *zones) begin(nodes []*corev1.Node, now time.Time) {
	z.freeze(true, now)
	for _, node := range nodes {
		z.setNode(node.Name, zoneOf(node), memberOf(node), now)
	}
	z.freeze(false, now)
}

// setNode records the zone and the state of a node.
func (z *zones) setNode(name, key string, m member, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	old, known := z.nodes[name]
	if known && old == (place{key, m}) {
		return
	}
	in := z.zones[key]
	if in == nil {
		in = &zone{state: zoneNormal, limiter: newLimiter(z.cfg.EvictionRate, now)}
		z.zones[key] = in
		z.metrics.evictions.WithLabelValues(key)
	}
	in.nodes++
	in.addToTally(m, 1)
	z.nodes[name] = place{key, m}
	if known {
		z.uncount(name, old, old.zone != key, now)
	}
	z.updateStates(now)
	z.setGauges(key)
	if known && old.zone != key {
		z.setGauges(old.zone)
	}
}

// removeNode removes a node.
func (z *zones) removeNode(name string, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if old, ok := z.nodes[name]; ok {
		delete(z.nodes, name)
		z.uncount(name, old, true, now)
		z.updateStates(now)
		z.setGauges(old.zone)
	}
}

// uncount removes a node from the counts of a zone, and the zone with its last node. The lock is held.
func (z *zones) uncount(name string, from place, leaves bool, now time.Time) {
	in := z.zones[from.zone]
	in.nodes--
	in.addToTally(from.member, -1)
	if leaves {
		z.leaveLine(in, name, now)
	}
	if in.nodes == 0 {
		delete(z.zones, from.zone)
	}
}

func (in *zone) addToTally(m member, by int) {
	switch {
	case m.counted && m.ready:
		in.tally.ready += by
	case m.counted:
		in.tally.notReady += by
	}
}

// freeze stops the states from following the counts, or lets the states catch up.
func (z *zones) freeze(frozen bool, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if z.frozen == frozen {
		return
	}
	z.frozen = frozen
	z.updateStates(now)
	for key, in := range z.zones {
		z.setGauges(key)
		if !frozen {
			z.enqueueWaiting(in, now) // waiting nodes have no other event
		}
	}
}

// updateStates sets the states and rates of all zones. The lock is held.
func (z *zones) updateStates(now time.Time) {
	if z.frozen {
		return
	}
	counted, failed := 0, 0
	for _, in := range z.zones {
		in.state = in.tally.state(z.cfg)
		if in.tally.size() > 0 {
			counted++
		}
		if in.state == zoneFull {
			failed++
		}
	}
	was := z.stopped
	z.stopped = counted > 0 && failed == counted
	for _, in := range z.zones {
		r := rate(in.state, in.tally, z.cfg)
		if z.stopped {
			r = 0
		}
		if in.limiter.rate != r {
			in.limiter.setRate(r, now)
			z.enqueueWaiting(in, now)
		}
	}
	if z.stopped != was {
		z.toggled(z.stopped)
	}
}

// setGauges sets the gauges of a zone, which may be gone. The lock is held.
func (z *zones) setGauges(key string) {
	if in := z.zones[key]; in != nil {
		z.metrics.zone(key, in.tally, in.state, len(in.waiting))
	} else {
		z.metrics.zone(key, tally{}, zoneNormal, 0)
	}
}

// enqueueWaiting queues each waiting node for its turn, unless the zone is blocked.
func (z *zones) enqueueWaiting(in *zone, now time.Time) {
	if in.limiter.rate == 0 {
		return
	}
	for i, name := range in.waiting {
		z.enqueue(name, in.limiter.slot(i).Sub(now))
	}
}

// isStopped reports whether no node may have a NoExecute taint of this controller.
func (z *zones) isStopped() bool {
	z.lock.Lock()
	defer z.lock.Unlock()
	return z.stopped
}

// acquire takes the token for a NoExecute taint of a node. Without a token the node waits in line and must
// call acquire again after wait. If wait is 0, enqueue announces the turn. While the zones are frozen, only an
// exhausted node gets a token.
func (z *zones) acquire(name string, exhausted bool, now time.Time) (granted bool, wait time.Duration) {
	z.lock.Lock()
	defer z.lock.Unlock()
	key := z.nodes[name].zone
	in := z.zones[key]
	if in == nil {
		return false, time.Second
	}
	turn := slices.Index(in.waiting, name)
	if turn < 0 {
		turn = len(in.waiting)
		in.waiting = append(in.waiting, name)
	}
	defer z.setGauges(key)
	if z.frozen && !exhausted || in.limiter.rate == 0 {
		return false, 0
	}
	if slot := in.limiter.slot(turn); now.Before(slot) {
		return false, slot.Sub(now)
	}
	in.limiter.take(now)
	z.leaveLine(in, name, now)
	return true, 0
}

// withdraw removes a node that needs no taint from the line.
func (z *zones) withdraw(name string, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	key := z.nodes[name].zone
	if in := z.zones[key]; in != nil && z.leaveLine(in, name, now) {
		z.setGauges(key)
	}
}

// giveBack returns the token of a taint that was not written. After a conflict the node keeps its turn. After
// a patch without a response the token is spent, and the node keeps its turn once.
func (z *zones) giveBack(name string, result outcome.Outcome, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	in := z.zones[z.nodes[name].zone]
	if in == nil {
		return
	}
	if result != outcome.Unknown {
		in.limiter.next = in.limiter.before
	}
	if result == outcome.Conflict || result == outcome.Unknown && in.unanswered != name {
		in.waiting = slices.Insert(in.waiting, 0, name) // the loop retries the node
	} else {
		z.enqueueFirst(in, now)
	}
	in.unanswered = ""
	if result == outcome.Unknown {
		in.unanswered = name
	}
}

// leaveLine removes a node from the line and queues the next node if the first leaves. The lock is held.
func (z *zones) leaveLine(in *zone, name string, now time.Time) bool {
	i := slices.Index(in.waiting, name)
	if i < 0 {
		return false
	}
	in.waiting = slices.Delete(in.waiting, i, i+1)
	if i == 0 {
		z.enqueueFirst(in, now)
	}
	return true
}

func (z *zones) enqueueFirst(in *zone, now time.Time) {
	if len(in.waiting) > 0 && in.limiter.rate > 0 {
		z.enqueue(in.waiting[0], in.limiter.slot(0).Sub(now))
	}
}
