package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// excludeLabel, with any value, excludes a node from the counts of its zone.
const excludeLabel = "node.kubernetes.io/exclude-disruption"

type zoneState string

// The states of a zone in kube-controller-manager v1.37.
const (
	zoneNormal  zoneState = "Normal"
	zonePartial zoneState = "PartialDisruption"
	zoneFull    zoneState = "FullDisruption"
)

var zoneStates = []zoneState{zoneNormal, zonePartial, zoneFull}

// zoneOf returns the zone of a node with the separator of upstream. Nodes without zone and region share the
// empty key.
func zoneOf(node *corev1.Node) string {
	zone, ok := node.Labels[corev1.LabelFailureDomainBetaZone]
	if !ok {
		zone = node.Labels[corev1.LabelTopologyZone]
	}
	region, ok := node.Labels[corev1.LabelFailureDomainBetaRegion]
	if !ok {
		region = node.Labels[corev1.LabelTopologyRegion]
	}
	if zone == "" && region == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

// tally counts the nodes of a zone that are not excluded.
type tally struct{ ready, notReady int }

func (t tally) size() int { return t.ready + t.notReady }

// state returns the state of a zone with these nodes. A zone with excluded nodes only is Normal.
func (t tally) state(cfg Config) zoneState {
	switch {
	case t.size() == 0:
		return zoneNormal
	case t.ready == 0:
		return zoneFull
	case t.notReady > 2 && float32(t.notReady)/float32(t.size()) >= cfg.UnhealthyZoneThreshold:
		return zonePartial
	}
	return zoneNormal
}

// rate returns the number of NoExecute taints per second in a zone. A zone that failed as a whole has the rate
// of a healthy zone, because other zones can run its pods.
func rate(s zoneState, t tally, cfg Config) float32 {
	switch {
	case s != zonePartial:
		return cfg.EvictionRate
	case t.size() > cfg.LargeClusterSizeThreshold:
		return cfg.SecondaryEvictionRate
	}
	return 0
}

// limiter is a token bucket with one token. The zero value blocks. Unlike rate.Limiter, it returns the times of later
// tokens without taking any.
type limiter struct {
	rate float32   // tokens per second; 0 blocks
	next time.Time // time of the next token
}

// setRate changes the rate. A bucket that was empty or blocked starts empty.
func (l *limiter) setRate(rate float32, now time.Time) {
	empty := l.rate == 0 || now.Before(l.next)
	l.rate = rate
	if empty && rate > 0 {
		l.next = now.Add(l.interval())
	}
}

// slot returns the time at which the node at position p of the line may take a token. The limiter must not be
// blocked.
func (l *limiter) slot(p int) time.Time {
	each := l.interval()
	return l.next.Add(min(time.Duration(p), longestWait/each) * each)
}

func (l *limiter) take(now time.Time) { l.next = now.Add(l.interval()) }

// longestWait bounds waiting times, because the interval of a very small rate does not fit into a time.Duration.
const longestWait = 365 * 24 * time.Hour

func (l *limiter) interval() time.Duration {
	seconds := min(1/float64(l.rate), longestWait.Seconds())
	return max(time.Duration(seconds*float64(time.Second)), 1)
}
