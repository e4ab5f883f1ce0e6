package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// healthMap holds the signs of life of all nodes. A standby fills the map as well, so a failover does not
// restart the grace periods. An entry belongs to one UID.
type healthMap struct {
	lock  sync.Mutex
	nodes map[string]nodeHealth
}

// nodeHealth is the health of one node.
type nodeHealth struct {
	uid             types.UID
	heartbeat       heartbeat
	ready           corev1.ConditionStatus // as last observed, empty if never posted
	checkedAt       time.Time              // first check, last sign of life in a live read, or our write of Unknown
	expectedVersion string                 // resource version of our last write or conflict, empty without one
}

// maxExtraPeriods bounds the extra time of a node, in grace periods. Without a bound an unreliable API server
// would keep a dead node alive.
const maxExtraPeriods = 3

// due returns the last instant at which the node counts as alive. Two checks of a node are at least a
// monitor period apart.
func (h nodeHealth) due(cfg Config) time.Time {
	grace := max(cfg.MonitorGracePeriod, cfg.MonitorPeriod) // the first check may be late
	if h.ready == "" {
		grace = cfg.StartupGracePeriod
	}
	due := h.heartbeat.seen.Add(grace)
	if floor := h.checkedAt.Add(cfg.MonitorPeriod); !h.checkedAt.IsZero() && floor.After(due) {
		return floor
	}
	return due
}

// deadlineCheck is the result of a check of the deadline of a node.
type deadlineCheck struct {
	silent  bool          // the deadline has passed
	recheck time.Duration // time until the next check of a node that is not silent
}

// evaluateDeadline decides whether a node is silent at now.
func (h nodeHealth) evaluateDeadline(cfg Config, now time.Time) deadlineCheck {
	due := h.due(cfg)
	if now.After(due) {
		return deadlineCheck{silent: true}
	}
	untilStep := due.Add(deadlineStep - 1).Truncate(deadlineStep).Sub(due)
	return deadlineCheck{recheck: due.Sub(now) + untilStep + deadlineSlack}
}

// hasSpentExtra reports whether the node has used up its extra time. From then on an outage does not protect the
// node.
func (h nodeHealth) hasSpentExtra(cfg Config) bool {
	return h.heartbeat.extra >= maxExtraPeriods*cfg.MonitorGracePeriod
}

// restartGracePeriod gives the node a new grace period after an outage that began at since. The silence
// before the outage counts as extra time. A node that was overdue before the outage has no claim to extra
// time.
func (h *nodeHealth) restartGracePeriod(since, now time.Time, cfg Config) {
	if h.due(cfg).Before(since) {
		h.heartbeat.extra = maxExtraPeriods * cfg.MonitorGracePeriod
	}
	if !h.hasSpentExtra(cfg) {
		h.heartbeat.extra += max(0, since.Sub(h.heartbeat.seen))
		h.heartbeat.seen = now
	}
}

// observe records the state of a node and returns the health. renewed returns the renewTime of a cached Lease. It is
// called for a new node, under the lock: an earlier event of the Lease is then in the cache, and a later event is
// recorded for the node. A missed event would look like a sign of life in the next live read.
func (m *healthMap) observe(node *corev1.Node, renewed func(name string) time.Time, now time.Time) nodeHealth {
	m.lock.Lock()
	defer m.lock.Unlock()
	h, ok := m.nodes[node.Name]
	if !ok || h.uid != node.UID {
		// The Lease counts as a sign of life, although the Lease may belong to an earlier node of the same name.
		created := heartbeat{seen: node.CreationTimestamp.Time}
		h = nodeHealth{uid: node.UID, heartbeat: created.afterLease(renewed(node.Name), now)}
	}
	h.heartbeat = h.heartbeat.afterStatus(node, now)
	h.ready = readiness(node)
	m.nodes[node.Name] = h
	return h
}

// recordLease records the renewTime of a Lease. A Lease without a node is ignored.
func (m *healthMap) recordLease(name string, renewed, now time.Time) {
	m.change(name, "", func(h *nodeHealth) { h.heartbeat = h.heartbeat.afterLease(renewed, now) })
}

// get returns the health of a node. An empty UID matches any UID.
func (m *healthMap) get(name string, uid types.UID) (nodeHealth, bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	h, ok := m.nodes[name]
	return h, ok && (uid == "" || h.uid == uid)
}

// change edits the health of a known node. An empty UID matches any UID.
func (m *healthMap) change(name string, uid types.UID, edit func(*nodeHealth)) {
	m.lock.Lock()
	defer m.lock.Unlock()
	h, ok := m.nodes[name]
	if !ok || uid != "" && h.uid != uid {
		return
	}
	edit(&h)
	m.nodes[name] = h
}

// forget removes a node. An empty UID matches any UID.
func (m *healthMap) forget(name string, uid types.UID) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if h, ok := m.nodes[name]; ok && (uid == "" || h.uid == uid) {
		delete(m.nodes, name)
	}
}

func (m *healthMap) changeAll(edit func(*nodeHealth)) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for name, h := range m.nodes {
		edit(&h)
		m.nodes[name] = h
	}
}
