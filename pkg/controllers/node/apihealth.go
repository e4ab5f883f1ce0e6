package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/outcome"
)

const (
	tickPeriod = time.Second
	// stallAfter is the delay of a tick after which this process counts as stalled.
	stallAfter = 5 * time.Second
)

// apiHealth decides whether the silence of nodes proves anything: only while kubelets can reach the API server.
//
// The API server becomes unreachable when a probe fails. An event of a node's Lease or a successful read ends
// this state, and every node that has not spent its extra time gets a new grace period. A standby sends no requests:
// for a standby a long time without events of these Leases counts as an outage.
type apiHealth struct {
	cfg     Config
	client  kubernetes.Interface // not rate limited
	clock   clock.WithTicker
	metrics *metrics
	health  *healthMap
	probing atomic.Bool

	lock           sync.Mutex
	leading        bool
	lastTick       time.Time
	lastLeaseEvent time.Time // of a Lease of a node
	lastSuccess    time.Time // of an event or a request; zero after a failed request
	unreachable    bool
}

// begin starts a term.
func (a *apiHealth) begin(now time.Time) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.endOutageLocked(now)
	a.leading, a.lastTick, a.lastSuccess = true, now, now
}

// end ends a term.
func (a *apiHealth) end() {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.leading = false
}

// quietPeriod returns the longest normal time without a Lease event.
func (a *apiHealth) quietPeriod() time.Duration { return a.cfg.MonitorGracePeriod / 2 }

func (a *apiHealth) endOutageLocked(now time.Time) {
	if a.unreachable || !a.leading && now.Sub(a.lastLeaseEvent) > a.quietPeriod() {
		a.unreachable = false
		a.restartGracePeriods(a.lastLeaseEvent, now)
	}
}

func (a *apiHealth) restartGracePeriods(since, now time.Time) {
	a.health.changeAll(func(h *nodeHealth) { h.restartGracePeriod(since, now, a.cfg) })
}

// observeLease handles an event of a Lease. The Lease of a node shows that the watch works and that a kubelet can
// renew. API servers and leaders may renew their Leases while kubelets cannot.
func (a *apiHealth) observeLease(lease *coordinationv1.Lease) {
	if lease.Namespace != corev1.NamespaceNodeLease {
		return
	}
	now := a.clock.Now()
	a.lock.Lock()
	a.endOutageLocked(now)
	a.lastLeaseEvent, a.lastSuccess = now, now
	a.lock.Unlock()
	a.health.recordLease(lease.Name, renewTimeOf(lease), now)
}

// observeRequest records the result of a live read or a probe.
func (a *apiHealth) observeRequest(err error) {
	now := a.clock.Now()
	a.lock.Lock()
	defer a.lock.Unlock()
	switch {
	case isUnavailable(err):
		a.lastSuccess = time.Time{}
	case err == nil:
		a.lastSuccess = now
		a.endOutageLocked(now)
	}
}

// isSuspended reports whether silent nodes must not become Unknown and zones must not change. A node
// that has spent its extra time is suspended only until the first tick after a stall.
func (a *apiHealth) isSuspended(extraSpent bool, now time.Time) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.isStalledLocked(now) || a.unreachable && !extraSpent
}

func (a *apiHealth) isStalledLocked(now time.Time) bool {
	return a.leading && now.Sub(a.lastTick) > tickPeriod+stallAfter
}

// run calls freeze every second until ctx ends, and probes the API server when a tick wants a probe.
func (a *apiHealth) run(ctx context.Context, freeze func(frozen bool, now time.Time)) {
	var probes sync.WaitGroup
	defer probes.Wait()
	ticker := a.clock.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := a.clock.Now()
		wantsProbe, unreachable := a.tick(now)
		a.metrics.suspended.Set(gaugeValue(unreachable))
		freeze(a.isSuspended(false, now), now)
		if wantsProbe && a.probing.CompareAndSwap(false, true) {
			probes.Go(func() {
				defer a.probing.Store(false)
				a.probe(ctx)
			})
		}
	}
}

// tick restarts the grace periods after a stall. It returns whether the API server must be probed, and whether the API
// server is unreachable.
func (a *apiHealth) tick(now time.Time) (wantsProbe, unreachable bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.isStalledLocked(now) && !a.unreachable { // the end of an outage restarts the grace periods
		a.restartGracePeriods(a.lastTick, now)
	}
	a.lastTick = now
	return a.unreachable || now.Sub(a.lastSuccess) > max(a.quietPeriod(), a.cfg.MonitorPeriod), a.unreachable
}

// probe sends a small list with a short timeout.
func (a *apiHealth) probe(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, min(max(a.cfg.MonitorGracePeriod/10, time.Second), 10*time.Second))
	defer cancel()
	_, err := a.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(limited, metav1.ListOptions{Limit: 1})
	a.observeRequest(err)
	if !isUnavailable(err) {
		return
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	if !a.unreachable {
		klog.FromContext(ctx).Info("API server is unreachable, silent nodes stay as they are", "err", err)
	}
	a.unreachable = true
}

// isUnavailable reports whether an error means that kubelets may not reach the API server either. Errors about
// one object and the end of the term do not.
func isUnavailable(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && outcome.IsUnavailable(err)
}
