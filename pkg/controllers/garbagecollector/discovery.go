package garbagecollector

import (
	"context"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/internal/timing"
)

// apiType is a discovered type.
type apiType struct {
	schema.GroupVersionResource // preferred version
	kind                        string
	namespaced                  bool
	versions                    []string // served versions
	// local types are served by the API server itself, from one storage for all versions and with preconditions.
	local bool
}

func (t apiType) objectType() objectType { return objectType{t.GroupResource(), t.kind, t.local} }

// kindIndex finds the discovered types of a kind.
type kindIndex struct {
	sent    time.Time // zero before the first discovery
	kinds   map[schema.GroupKind][]apiType
	failing map[string]bool // groups with versions that failed
}

func newKindIndex(sent time.Time, failing map[string]bool, all ...apiType) kindIndex {
	c := kindIndex{sent: sent, kinds: map[schema.GroupKind][]apiType{}, failing: failing}
	for _, t := range all {
		kind := schema.GroupKind{Group: t.Group, Kind: t.kind}
		c.kinds[kind] = append(c.kinds[kind], t)
	}
	exact := maps.Clone(c.kinds)
	for _, t := range all { // a kind in lower case stands for any kind, as for meta.RESTMapper
		kind := schema.GroupKind{Group: t.Group, Kind: strings.ToLower(t.kind)}
		if exact[kind] == nil {
			c.kinds[kind] = append(c.kinds[kind], t)
		}
	}
	return c
}

const (
	// discoveryInterval is the interval of discoveries without events.
	discoveryInterval = 5 * time.Minute
	// maxRetryInterval bounds the interval of discoveries while a group fails, a type is about to be dropped, or a
	// feed cannot start.
	maxRetryInterval = 30 * time.Second
	// minDiscoveryInterval limits the discoveries that events and blocked owners cause.
	minDiscoveryInterval = 500 * time.Millisecond
)

// eventDelays are the times of discoveries after an event of a CustomResourceDefinition or APIService. Discovery
// follows such an event some moments later. The aggregator polls a repaired server after some seconds.
var eventDelays = [...]time.Duration{250 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}

// nextDiscovery returns the time of the next discovery. sent is the time of the latest one, retries counts the latest
// discoveries that left something to do, and event is the time of the latest event. awaited is true while a caller of
// discoveredSince waits for a newer discovery.
func nextDiscovery(sent time.Time, retries int, event time.Time, awaited bool) time.Time {
	next := sent.Add(discoveryInterval)
	if retries > 0 {
		next = sent.Add(min(time.Second<<min(retries-1, 10), maxRetryInterval))
	}
	for _, delay := range eventDelays {
		if due := event.Add(delay); due.After(sent) {
			next = timing.Earlier(next, due)
			break
		}
	}
	if awaited {
		next = sent
	}
	return timing.Later(next, sent.Add(minDiscoveryInterval))
}

// sendDiscoveries sends discoveries until ctx ends.
func (t *knownTypes) sendDiscoveries(ctx context.Context) {
	var sent time.Time
	retries := 0
	next := t.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			next = timing.Earlier(next, t.dueAfter(sent, retries)) // a series of events must not postpone the discovery
		case <-t.Clock.After(next.Sub(t.Clock.Now())):
			sent = t.Clock.Now()
			if retries++; t.refreshTypes(ctx) {
				retries = 0
			}
			next = t.dueAfter(sent, retries)
		}
	}
}

func (t *knownTypes) dueAfter(sent time.Time, retries int) time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	failed := t.latest.sent.Before(sent)
	return nextDiscovery(sent, retries, t.event, !failed && !t.latest.sent.After(t.awaited))
}

// definitionChanged is called after each event and list of CustomResourceDefinitions or APIServices. It marks the types
// of new definitions as local at once, because the next discovery may be seconds away.
func (t *knownTypes) definitionChanged() {
	t.lock.Lock()
	t.event = t.Clock.Now()
	t.updateDefinedLocked(t.event)
	for r, k := range t.types {
		if k.store != nil && !k.local && t.isLocalLocked(r) {
			k.local = true
			k.store = t.graph.storeFor(k.objectType())
		}
	}
	t.lock.Unlock()
	t.wakeDiscovery()
}

// discoveredSince reports whether the latest discovery was sent after a moment. If not, a discovery is sent soon. A
// type that an earlier discovery lacks may have objects by now. See unknownGroups for groups that failed.
func (t *knownTypes) discoveredSince(moment time.Time) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	known := t.latest.sent.After(moment)
	if !known {
		t.awaited = timing.Later(t.awaited, moment)
		t.wakeDiscovery()
	}
	return known
}
