package node

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// zones counts the nodes of each zone and limits the rate of their NoExecute taints. Counts follow the nodes
// at once, states and rates follow the counts except while frozen. A zones value lives for one term, so each zone
// begins a term with one token, as in kube-controller-manager.
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
	zone           string
	counted, ready bool
}

func placeOf(node *corev1.Node) place {
	_, excluded := node.Labels[excludeLabel]
	return place{zone: zoneOf(node), counted: !excluded, ready: readiness(node) == corev1.ConditionTrue}
}

type zone struct {
	key     string
	nodes   int // excluded nodes included
	tally   tally
	state   zoneState
	limiter limiter
	waiting []string // nodes that wait for a taint, in order
}

func newZones(cfg Config, m *metrics, enqueue func(string, time.Duration), toggled func(bool)) *zones {
	return &zones{cfg: cfg, metrics: m, enqueue: enqueue, toggled: toggled, nodes: map[string]place{}, zones: map[string]*zone{}}
}

// begin counts all nodes before the first decision.
func (z *zones) begin(nodes []*corev1.Node, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	for _, node := range nodes {
		z.nodes[node.Name] = placeOf(node)
	}
	z.updateLocked(now)
}

// setNode records the place of a node.
func (z *zones) setNode(name string, p place, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	old, known := z.nodes[name]
	if known && old == p {
		return
	}
	if known && old.zone != p.zone {
		z.leaveLineLocked(z.zones[old.zone], name, now)
	}
	z.nodes[name] = p
	z.updateLocked(now)
}

// removeNode removes a node.
func (z *zones) removeNode(name string, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	if old, ok := z.nodes[name]; ok {
		z.leaveLineLocked(z.zones[old.zone], name, now)
		delete(z.nodes, name)
		z.updateLocked(now)
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
	z.updateLocked(now)
	for _, in := range z.zones {
		z.enqueueFirstLocked(in, now)
	}
}

// updateLocked counts the nodes of all zones and, unless frozen, sets the states and rates.
func (z *zones) updateLocked(now time.Time) {
	for _, in := range z.zones {
		in.nodes, in.tally = 0, tally{}
	}
	for _, p := range z.nodes {
		in := z.zones[p.zone]
		if in == nil {
			in = &zone{key: p.zone, state: zoneNormal, limiter: limiter{rate: z.cfg.EvictionRate, next: now}}
			z.zones[p.zone] = in
			z.metrics.evictions.WithLabelValues(p.zone)
			z.setLineLocked(in, nil)
		}
		in.nodes++
		switch {
		case p.counted && p.ready:
			in.tally.ready++
		case p.counted:
			in.tally.notReady++
		}
	}
	counted, failed := 0, 0
	for key, in := range z.zones {
		if in.nodes == 0 {
			delete(z.zones, key)
			z.metrics.setZone(key, tally{}, zoneNormal)
			continue
		}
		if !z.frozen {
			in.state = in.tally.state(z.cfg)
		}
		z.metrics.setZone(key, in.tally, in.state)
		if in.tally.size() > 0 {
			counted++
		}
		if in.state == zoneFull {
			failed++
		}
	}
	if z.frozen {
		return
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
			z.enqueueFirstLocked(in, now)
		}
	}
	if z.stopped != was {
		z.toggled(z.stopped)
	}
}

// isStopped reports whether no node may have a NoExecute taint of this controller.
func (z *zones) isStopped() bool {
	z.lock.Lock()
	defer z.lock.Unlock()
	return z.stopped
}

// acquire takes the token for a NoExecute taint of a node. Without a token the node waits in line and must
// call acquire again after wait. If wait is 0, enqueue announces the turn. While the zones are frozen, only a
// node that has spent its extra time gets a token. A failed write costs the token and the place in line.
func (z *zones) acquire(name string, extraSpent bool, now time.Time) (granted bool, wait time.Duration) {
	z.lock.Lock()
	defer z.lock.Unlock()
	in := z.zones[z.nodes[name].zone]
	turn := slices.Index(in.waiting, name)
	if turn < 0 {
		turn = len(in.waiting)
		z.setLineLocked(in, append(in.waiting, name))
	}
	if z.frozen && !extraSpent || in.limiter.rate == 0 {
		return false, 0
	}
	if slot := in.limiter.slot(turn); now.Before(slot) {
		return false, slot.Sub(now)
	}
	in.limiter.take(now)
	z.leaveLineLocked(in, name, now)
	return true, 0
}

// withdraw removes a node that needs no taint from the line.
func (z *zones) withdraw(name string, now time.Time) {
	z.lock.Lock()
	defer z.lock.Unlock()
	z.leaveLineLocked(z.zones[z.nodes[name].zone], name, now)
}

// leaveLineLocked removes a node from the line and queues the next node if the first leaves.
func (z *zones) leaveLineLocked(in *zone, name string, now time.Time) {
	i := slices.Index(in.waiting, name)
	if i < 0 {
		return
	}
	z.setLineLocked(in, slices.Delete(in.waiting, i, i+1))
	if i == 0 {
		z.enqueueFirstLocked(in, now)
	}
}

func (z *zones) setLineLocked(in *zone, waiting []string) {
	in.waiting = waiting
	z.metrics.pending.WithLabelValues(in.key).Set(float64(len(waiting)))
}

// enqueueFirstLocked queues the first waiting node for its turn. Waiting nodes have no other event.
func (z *zones) enqueueFirstLocked(in *zone, now time.Time) {
	if len(in.waiting) > 0 && in.limiter.rate > 0 && !z.frozen {
		z.enqueue(in.waiting[0], in.limiter.slot(0).Sub(now))
	}
}
