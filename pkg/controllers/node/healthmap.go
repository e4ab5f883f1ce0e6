package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// healthMap remembers each node's signs of life. The handlers feed it, on a standby too, so that a failover does not start every grace
// period anew. An entry belongs to one UID: a node deleted and made again under its name starts afresh.
type healthMap struct {
	lock  sync.Mutex
	nodes map[string]nodeHealth
}

// nodeHealth is what is known about one node's health besides its object.
type nodeHealth struct {
	uid       types.UID
	heartbeat heartbeat
	ready     corev1.ConditionStatus // as last seen or written by us, empty if never posted
	version   string                 // resource version of the last state that was seen, by watch or live
	judged    time.Time              // when the node was last judged, zero if never
}

// due is when the node's grace ends.
func (h nodeHealth) due(cfg Config) time.Time {
	return deadline(h.heartbeat, h.judged, h.ready != "", cfg)
}

// judge says whether the node has been silent for too long at now.
func (h nodeHealth) judge(cfg Config, now time.Time) judgement {
	return judge(h.heartbeat, h.judged, h.ready != "", cfg, now)
}

// isExhausted reports whether the node has been given all the time that blindness may give; from then on only a live read speaks for it.
func (h nodeHealth) isExhausted(cfg Config) bool {
	return h.heartbeat.isExhausted(cfg.MonitorGracePeriod)
}

// isLagging reports whether a node that its zone counts as Ready may not be so: it is known not to be, or is late.
func (h nodeHealth) isLagging(cfg Config, now time.Time) bool {
	return h.ready != corev1.ConditionTrue || h.heartbeat.isLate(h.due(cfg), cfg.MonitorGracePeriod, now)
}

// setUnknown takes in that our write, which made a version of the node, has set it to Unknown. Its kubelet may have been faster than the answer.
func (h *nodeHealth) setUnknown(version string, now time.Time) {
	h.judged = now
	if reached(version, h.version) {
		h.ready = corev1.ConditionUnknown
	}
}

func newHealthMap() *healthMap {
	return &healthMap{nodes: map[string]nodeHealth{}}
}

// node takes in the state of a node and returns its health. renewed is what the Lease cache holds; it matters only for a node that is new.
func (m *healthMap) node(node *corev1.Node, renewed, now time.Time) nodeHealth {
	m.lock.Lock()
	defer m.lock.Unlock()
	h, ok := m.nodes[node.Name]
	if !ok || h.uid != node.UID {
		h = nodeHealth{uid: node.UID, heartbeat: firstHeartbeat(node, renewed, now)}
	} else {
		h.heartbeat = h.heartbeat.afterStatus(node, now)
	}
	h.ready, h.version = readiness(node), node.ResourceVersion
	m.nodes[node.Name] = h
	return h
}

// lease takes in a renewTime that came by watch. A Lease without a node is not remembered.
func (m *healthMap) lease(name string, renewed, now time.Time) {
	m.change(name, "", func(h *nodeHealth) { h.heartbeat = h.heartbeat.afterLease(renewed, now) })
}

// liveLease takes in a renewTime that a consistent read showed and reports whether it is a sign of life.
func (m *healthMap) liveLease(name string, renewed, now time.Time) (news bool) {
	m.change(name, "", func(h *nodeHealth) {
		before := h.heartbeat
		h.heartbeat = before.afterLiveLease(renewed, now)
		news = h.heartbeat != before
	})
	return news
}

// of returns the health of a node, if something is known about it; an empty UID fits any.
func (m *healthMap) of(name string, uid types.UID) (nodeHealth, bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	h, ok := m.nodes[name]
	return h, ok && (uid == "" || h.uid == uid)
}

// change edits the health of a node in place, if something is known about it; an empty UID fits any.
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

// forget drops what is known about a node; an empty UID fits any.
func (m *healthMap) forget(name string, uid types.UID) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if h, ok := m.nodes[name]; ok && (uid == "" || h.uid == uid) {
		delete(m.nodes, name)
	}
}

// changeAll edits the health of every node.
func (m *healthMap) changeAll(edit func(*nodeHealth)) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for name, h := range m.nodes {
		edit(&h)
		m.nodes[name] = h
	}
}

// count counts all nodes and those that are not Unknown and due before a time.
func (m *healthMap) count(cfg Config, before time.Time) (all, due int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, h := range m.nodes {
		if h.ready != corev1.ConditionUnknown && h.due(cfg).Before(before) {
			due++
		}
	}
	return len(m.nodes), due
}
