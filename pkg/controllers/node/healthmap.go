package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// healthMap remembers each node's signs of life. It is fed by the handlers, on a standby too, so that a failover does not
// start every grace period anew. A record belongs to one UID: a node deleted and made again under its name starts afresh.
type healthMap struct {
	lock    sync.Mutex
	records map[string]nodeHealth
}

// nodeHealth is what is known about one node besides its object.
type nodeHealth struct {
	uid       types.UID
	heartbeat heartbeat
	ready     corev1.ConditionStatus // as last seen or decided, empty if never posted
	version   string                 // resource version of the last state that was seen, by watch or live
	judged    time.Time              // when it was last judged, zero if never
	written   string                 // resource version that our last write gave it
	refused   string                 // resource version that was too old for our last write
	conflicts int                    // since our last write
}

// due is when the node's grace ends.
func (r nodeHealth) due(cfg Config) time.Time {
	return deadline(r.heartbeat, r.judged, r.ready != "", cfg)
}

// setUnknown takes in that our write, which made a version of the node, has set it to Unknown. Its kubelet may have been faster than the answer.
func (r *nodeHealth) setUnknown(version string, now time.Time) {
	r.judged = now
	if reached(version, r.version) {
		r.ready = corev1.ConditionUnknown
	}
}

func newHealthMap() *healthMap {
	return &healthMap{records: map[string]nodeHealth{}}
}

// node takes in the state of a node and returns its record. renewed is what the Lease cache holds; it matters at first sight.
func (o *healthMap) node(node *corev1.Node, renewed, now time.Time) nodeHealth {
	o.lock.Lock()
	defer o.lock.Unlock()
	r, ok := o.records[node.Name]
	if !ok || r.uid != node.UID {
		r = nodeHealth{uid: node.UID, heartbeat: firstHeartbeat(node, renewed, now)}
	} else {
		r.heartbeat = r.heartbeat.afterStatus(node, now)
	}
	r.ready, r.version = readiness(node), node.ResourceVersion
	o.records[node.Name] = r
	return r
}

// lease takes in a renewTime that came by watch. A Lease without a node is not remembered.
func (o *healthMap) lease(name string, renewed, now time.Time) {
	o.change(name, "", func(r *nodeHealth) { r.heartbeat = r.heartbeat.afterLease(renewed, now) })
}

// liveLease takes in a renewTime that a consistent read showed and reports whether it is a sign of life.
func (o *healthMap) liveLease(name string, renewed, now time.Time) (news bool) {
	o.change(name, "", func(r *nodeHealth) {
		before := r.heartbeat
		r.heartbeat = before.afterLiveLease(renewed, now)
		news = r.heartbeat != before
	})
	return news
}

// get returns the record of a name.
func (o *healthMap) get(name string) (nodeHealth, bool) {
	o.lock.Lock()
	defer o.lock.Unlock()
	r, ok := o.records[name]
	return r, ok
}

// change edits a record in place, if there is one and it is of the UID; an empty UID fits any.
func (o *healthMap) change(name string, uid types.UID, edit func(*nodeHealth)) {
	o.lock.Lock()
	defer o.lock.Unlock()
	r, ok := o.records[name]
	if !ok || uid != "" && r.uid != uid {
		return
	}
	edit(&r)
	o.records[name] = r
}

// forget drops the record of a name, if it is of the UID; an empty UID fits any.
func (o *healthMap) forget(name string, uid types.UID) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if r, ok := o.records[name]; ok && (uid == "" || r.uid == uid) {
		delete(o.records, name)
	}
}

// changeAll edits every record.
func (o *healthMap) changeAll(edit func(name string, r *nodeHealth)) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for name, r := range o.records {
		edit(name, &r)
		o.records[name] = r
	}
}

// count counts all records and those that are not Unknown and due before a time.
func (o *healthMap) count(cfg Config, before time.Time) (all, due int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, r := range o.records {
		if r.ready != corev1.ConditionUnknown && r.due(cfg).Before(before) {
			due++
		}
	}
	return len(o.records), due
}
