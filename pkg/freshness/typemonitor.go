package freshness

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// listTimeout bounds one page of metadata. A slower API server proves nothing.
const listTimeout = 10 * time.Second

// typeMonitor checks one type. All fields belong to the goroutine of run.
type typeMonitor struct {
	*Monitor
	WatchedCache

	listed         bool      // the last consistent list succeeded
	requestedAt    time.Time // time of the last consistent list
	listedAt       time.Time // time of the last consistent list that succeeded
	listedVersion  string    // of that list
	forbiddenSince time.Time // zero if lists are not forbidden
	listedGoal     goal      // of the listed versions
	expectedGoal   goal      // of the expected versions

	state          cacheState
	enteredAt      time.Time
	version        string // of the cache, at the last check
	changedAt      time.Time
	reopenedAt     time.Time
	comparedAt     time.Time
	nextComparison time.Time     // the earliest time of the next whole list
	failurePause   time.Duration // after the last whole list, or zero if the list succeeded
	equalVersion   string        // of the list that the cache was last equal to
	lacking        difference
}

func (t *typeMonitor) run(ctx context.Context) error {
	for timing.Sleep(ctx, t.deps.Clock, cmp.Or(t.MaxSilence/6, settleTime/2)) {
		if err := t.checkType(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkType decides about the type. The error has ErrSetBack.
func (t *typeMonitor) checkType(ctx context.Context) error {
	// 1. Compare the version of the cache with the version of the API server and with own writes.
	now := t.deps.Clock.Now()
	if since := now.Sub(t.requestedAt); since >= listInterval || !t.listed && since >= settleTime/2 {
		if err := t.fetchVersion(ctx, now); err != nil {
			return err
		}
	}
	if v := t.Version(); v != t.version {
		t.version, t.changedAt = v, now
	}
	t.expectedGoal.update(t.version, t.Expected(), now)
	reached := t.version
	if t.equalVersion != "" && rv.MayBeNewer(t.equalVersion, reached) {
		reached = t.equalVersion
	}
	t.listedGoal.update(reached, t.listedVersion, now)
	if t.state == stale && t.listedGoal.version == "" {
		t.listedGoal.update(reached, t.listedVersion, now) // a stale cache has to reach the newest version
	}
	a := t.deps.Transport.activityOf(t.target())
	t.setGauges(a, now)
	// 2. Another replica may have the right to list. By then, Transport has reopened the watch.
	switch silent := now.Sub(a.lastByte); {
	case t.forbiddenSince.IsZero():
	case min(now.Sub(t.forbiddenSince), silent) >= watchIdleTimeout+settleTime:
		t.setStale(ctx, "its lists are forbidden and its watch is silent")
		t.enterState(ctx, stale, now)
	case t.state == stale && silent < settleTime && !t.stillDiffers() && t.expectedGoal.age(now) < settleTime:
		t.enterState(ctx, current, now)
	}
	if !t.listed {
		return nil
	}
	// 3. Decide and act.
	next, compare := t.state.nextState(t.newObservation(a, now))
	switch {
	case compare:
		if t.compareWithList(ctx, now) {
			next = current
		}
	case t.state == behind && next == reopened:
		t.reopenWatch(ctx, now.Add(-cmp.Or(t.MaxSilence, silenceLimit)), now)
	case t.state == reopened && next == stale: // only if the API server still returns lists
		if err := t.fetchVersion(ctx, now); err != nil || !t.listed {
			return err
		}
	}
	if next == stale && (compare || t.state == reopened) {
		reason := cmp.Or(t.lacking.String(), "no watch has delivered version "+cmp.Or(t.expectedGoal.version, t.listedGoal.version))
		t.setStale(ctx, reason)
		if t.state == reopened || now.Sub(t.reopenedAt) >= cmp.Or(t.MaxSilence, relistLimit) {
			// Use another connection: the present connection may lead to an API server without events of this type.
			t.reopenWatch(ctx, now.Add(time.Hour), now)
		}
	}
	t.enterState(ctx, next, now)
	return nil
}

// setStale records a stale type and steps down. A repeated call steps down again, unless no other process
// took the lease the last time.
func (t *typeMonitor) setStale(ctx context.Context, reason string) {
	reason = t.target().String() + ": " + reason
	t.lock.Lock()
	t.stale[t.target()] = reason
	t.lock.Unlock()
	t.deps.Metrics.stale.WithLabelValues(t.target().labels()...).Set(1)
	if t.state != stale {
		klog.FromContext(ctx).Info("Cache is stale", "reason", reason)
	}
	t.deps.StepDown(reason, func() bool { return t.Check() == nil })
}

func (t *typeMonitor) enterState(ctx context.Context, next cacheState, now time.Time) {
	if next == t.state {
		return
	}
	if t.state == stale {
		t.lock.Lock()
		delete(t.stale, t.target())
		t.lock.Unlock()
		t.deps.Metrics.stale.WithLabelValues(t.target().labels()...).Set(0)
		klog.FromContext(ctx).Info("Cache is current again", "watch", t.target().String())
	}
	if next == current || next == behind {
		t.lacking, t.comparedAt = nil, time.Time{}
	}
	klog.FromContext(ctx).V(4).Info("Watch state changed", "watch", t.target().String(), "from", t.state, "to", next)
	t.state, t.enteredAt = next, now
}

// fetchVersion reads the latest resourceVersion with a limit=1 list. After a failed list, a type that is
// not stale becomes current.
func (t *typeMonitor) fetchVersion(ctx context.Context, now time.Time) error {
	known := []string{t.Version(), t.Expected(), t.listedVersion} // no list can be older
	t.requestedAt = now
	page, err := t.listPage(ctx, metav1.ListOptions{Limit: 1})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.forbiddenSince = time.Time{}
	} else if t.forbiddenSince.IsZero() {
		t.forbiddenSince = now
	}
	if t.listed = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("List failed, cannot check cache freshness", "watch", t.target().String(), "err", err)
		if t.state != stale {
			t.expectedGoal = goal{}
			t.enterState(ctx, current, now)
		}
		return nil
	}
	for _, v := range known {
		if rv.Newer(v, page.ResourceVersion) {
			return fmt.Errorf("%w: %v had resourceVersion %s and now has %s", ErrSetBack, t.target(), v, page.ResourceVersion)
		}
	}
	t.listedAt, t.listedVersion = now, page.ResourceVersion
	return nil
}

// goal is the oldest known version that the cache has not reached. Zero if the cache has reached all.
type goal struct {
	version string
	since   time.Time
}

// update drops a version that was reached. The next version is set by the next update, and so gets the full
// time.
func (g *goal) update(reached, known string, now time.Time) {
	switch {
	case g.version == "" && known != "" && rv.MayBeNewer(known, reached):
		*g = goal{known, now}
	case rv.AtLeast(reached, g.version):
		*g = goal{}
	}
}

// age returns the time for which the cache has missed the version, or 0.
func (g goal) age(now time.Time) time.Duration {
	if g.version == "" {
		return 0
	}
	return now.Sub(g.since)
}

func (t *typeMonitor) setGauges(a activity, now time.Time) {
	// The last byte may have come after now was read.
	idle, lag := max(0, now.Sub(a.lastByte)), t.listedGoal.age(now)
	if !t.listed {
		lag = max(lag, min(idle, now.Sub(t.listedAt)))
	}
	t.deps.Metrics.idle.WithLabelValues(t.target().labels()...).Set(idle.Seconds())
	t.deps.Metrics.lag.WithLabelValues(t.target().labels()...).Set(lag.Seconds())
}

func (t *typeMonitor) newObservation(a activity, now time.Time) observation {
	return observation{
		behind: t.listedGoal.version != "" || t.expectedGoal.version != "", missingFor: t.expectedGoal.age(now),
		maxSilence: t.MaxSilence, open: a.watch != nil, silentFor: now.Sub(a.lastByte),
		listing: !a.listingSince.IsZero() && now.Sub(a.listingSince) < relistLimit && now.Sub(a.lastProgress) < silenceLimit,
		inState: now.Sub(t.enteredAt), unchangedFor: now.Sub(t.changedAt), comparedAgo: now.Sub(t.comparedAt),
		differs: t.stillDiffers(),
	}
}

// stillDiffers reports whether a difference that the last comparison has shown still exists.
func (t *typeMonitor) stillDiffers() bool {
	if len(t.lacking) > 0 {
		t.lacking.removeHealed(t.Objects())
	}
	return len(t.lacking) > 0 || t.expectedGoal.age(t.comparedAt) >= settleTime
}

// reopenWatch restarts the watch, on a new connection if the client has received nothing since.
func (t *typeMonitor) reopenWatch(ctx context.Context, since, now time.Time) {
	klog.FromContext(ctx).V(2).Info("Reopening a watch that does not deliver", "watch", t.target().String(),
		"state", t.state, "version", t.Version(), "missing", cmp.Or(t.expectedGoal.version, t.listedGoal.version))
	if t.deps.Transport.reopenWatch(t.target(), since) {
		t.deps.Metrics.reopened.WithLabelValues(t.target().labels()...).Inc()
	}
	t.reopenedAt = now
}

// compareWithList compares the cache with the API server, and reports whether they are equal. An expected
// version that is still missing is a difference. Otherwise the metadata of all objects is listed. A failed
// list shows nothing.
func (t *typeMonitor) compareWithList(ctx context.Context, now time.Time) (equal bool) {
	t.comparedAt = now // a failed list shows nothing about a version that is first missed while the list is read
	if t.stillDiffers() || now.Before(t.nextComparison) {
		return false
	}
	listed, version, err := t.listAll(ctx, t.listPage)
	if err != nil {
		t.failurePause = min(max(2*t.failurePause, listInterval), equalInterval)
		t.nextComparison = t.deps.Clock.Now().Add(wait.Jitter(t.failurePause, 0.5))
		klog.FromContext(ctx).V(2).Info("Whole list failed, cannot check cache freshness", "watch", t.target().String(), "err", err, "nextTry", t.nextComparison)
		return false
	}
	t.comparedAt, t.failurePause = t.deps.Clock.Now(), 0
	t.lacking, t.nextComparison = differenceTo(listed, version, t.Objects()), t.comparedAt.Add(listInterval)
	if len(t.lacking) > 0 {
		return false
	}
	// The short watch has ended, so it would have delivered.
	if t.deps.Transport.activityOf(t.target()).lastProgress.Sub(t.reopenedAt) >= shortWatch/2 {
		t.nextComparison = t.comparedAt.Add(equalInterval)
	}
	t.equalVersion = version
	return true
}

// listPage reads one page of metadata. All pages of a list may take minutes, so the gauges are updated meanwhile.
func (t *typeMonitor) listPage(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { t.setGauges(t.deps.Transport.activityOf(t.target()), t.deps.Clock.Now()) }()
	return t.deps.Metadata.Resource(t.Resource).Namespace(t.Namespace).List(ctx, options)
}
