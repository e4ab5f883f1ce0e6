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
	Watched

	listed         bool      // The last consistent list succeeded.
	requestedAt    time.Time // Time of the last consistent list.
	listedAt       time.Time // Time of the last consistent list that succeeded.
	listedVersion  string    // Of that list.
	forbiddenSince time.Time // Zero if lists are not forbidden.
	listedGoal     goal      // Of the listed versions.
	expectedGoal   goal      // Of the expected versions.

	state          cacheState
	enteredAt      time.Time
	version        string // Of the cache, at the last check.
	changedAt      time.Time
	reopenedAt     time.Time
	comparedAt     time.Time
	nextComparison time.Time     // The earliest time of the next whole list.
	failurePause   time.Duration // After the last whole list, or zero if the list succeeded.
	equalAt        string        // The version at which the cache was found equal to a list.
	lacking        difference
}

func (k *typeMonitor) run(ctx context.Context) error {
	for timing.Sleep(ctx, k.deps.Clock, cmp.Or(k.Impatience/6, settleTime/2)) {
		if err := k.checkType(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkType decides about the type. The error has ErrSetBack.
func (k *typeMonitor) checkType(ctx context.Context) error {
	// 1. Compare the version of the cache with the version of the API server and with own writes.
	now := k.deps.Clock.Now()
	if since := now.Sub(k.requestedAt); since >= listInterval || !k.listed && since >= settleTime/2 {
		if err := k.fetchVersion(ctx, now); err != nil {
			return err
		}
	}
	if v := k.Version(); v != k.version {
		k.version, k.changedAt = v, now
	}
	k.expectedGoal.update(k.version, k.Expected(), now)
	reached := k.version
	if k.equalAt != "" && rv.MayBeNewer(k.equalAt, reached) {
		reached = k.equalAt
	}
	k.listedGoal.update(reached, k.listedVersion, now)
	if k.state == stale && k.listedGoal.version == "" {
		k.listedGoal.update(reached, k.listedVersion, now) // A stale cache has to reach the newest version.
	}
	a := k.deps.Transport.activityOf(k.target())
	k.setGauges(a, now)
	// 2. Another replica may have the right to list. By then, Transport has reopened the watch.
	switch silent := now.Sub(a.lastByte); {
	case k.forbiddenSince.IsZero():
	case min(now.Sub(k.forbiddenSince), silent) >= watchPatience+settleTime:
		k.setStale(ctx, "its lists are forbidden and its watch is silent")
		k.enterState(ctx, stale, now)
	case k.state == stale && silent < settleTime && !k.stillDiffers() && k.expectedGoal.age(now) < settleTime:
		k.enterState(ctx, current, now)
	}
	if !k.listed {
		return nil
	}
	// 3. Decide and act.
	next, compare := k.state.nextState(k.newObservation(a, now))
	switch {
	case compare:
		if k.compareWithList(ctx, now) {
			next = current
		}
	case k.state == behind && next == reopened:
		k.reopenWatch(ctx, now.Add(-cmp.Or(k.Impatience, silenceLimit)), now)
	case k.state == reopened && next == stale: // Only if the API server still returns lists.
		if err := k.fetchVersion(ctx, now); err != nil || !k.listed {
			return err
		}
	}
	if next == stale && (compare || k.state == reopened) {
		reason := cmp.Or(k.lacking.String(), "no watch has delivered version "+cmp.Or(k.expectedGoal.version, k.listedGoal.version))
		k.setStale(ctx, reason)
		if k.state == reopened || now.Sub(k.reopenedAt) >= cmp.Or(k.Impatience, relistLimit) {
			// Use another connection: the present connection may lead to an API server without events of this type.
			k.reopenWatch(ctx, now.Add(time.Hour), now)
		}
	}
	k.enterState(ctx, next, now)
	return nil
}

// setStale records a stale type and steps down. A repeated call steps down again, unless no other process
// took the lease the last time.
func (k *typeMonitor) setStale(ctx context.Context, reason string) {
	reason = k.target().String() + ": " + reason
	k.lock.Lock()
	k.stale[k.target()] = reason
	k.lock.Unlock()
	k.deps.Metrics.stale.WithLabelValues(k.target().labels()...).Set(1)
	if k.state != stale {
		klog.FromContext(ctx).Info("Cache is stale", "reason", reason)
	}
	k.deps.StepDown(reason, func() bool { return k.Check() == nil })
}

func (k *typeMonitor) enterState(ctx context.Context, next cacheState, now time.Time) {
	if next == k.state {
		return
	}
	if k.state == stale {
		k.lock.Lock()
		delete(k.stale, k.target())
		k.lock.Unlock()
		k.deps.Metrics.stale.WithLabelValues(k.target().labels()...).Set(0)
		klog.FromContext(ctx).Info("Cache is current again", "watch", k.target().String())
	}
	if next == current || next == behind {
		k.lacking, k.comparedAt = nil, time.Time{}
	}
	klog.FromContext(ctx).V(4).Info("Watch state changed", "watch", k.target().String(), "from", k.state, "to", next)
	k.state, k.enteredAt = next, now
}

// fetchVersion reads the latest resourceVersion with a limit=1 list. After a failed list, a type that is
// not stale becomes current.
func (k *typeMonitor) fetchVersion(ctx context.Context, now time.Time) error {
	known := []string{k.Version(), k.Expected(), k.listedVersion} // No list can be older.
	k.requestedAt = now
	page, err := k.listPage(ctx, metav1.ListOptions{Limit: 1})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		k.forbiddenSince = time.Time{}
	} else if k.forbiddenSince.IsZero() {
		k.forbiddenSince = now
	}
	if k.listed = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("List failed, cannot check cache freshness", "watch", k.target().String(), "err", err)
		if k.state != stale {
			k.expectedGoal = goal{}
			k.enterState(ctx, current, now)
		}
		return nil
	}
	for _, v := range known {
		if rv.Newer(v, page.ResourceVersion) {
			return fmt.Errorf("%w: %v had resourceVersion %s and now has %s", ErrSetBack, k.target(), v, page.ResourceVersion)
		}
	}
	k.listedAt, k.listedVersion = now, page.ResourceVersion
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

func (k *typeMonitor) setGauges(a activity, now time.Time) {
	// The last byte may have come after now was read.
	idle, lag := max(0, now.Sub(a.lastByte)), k.listedGoal.age(now)
	if !k.listed {
		lag = max(lag, min(idle, now.Sub(k.listedAt)))
	}
	k.deps.Metrics.idle.WithLabelValues(k.target().labels()...).Set(idle.Seconds())
	k.deps.Metrics.lag.WithLabelValues(k.target().labels()...).Set(lag.Seconds())
}

func (k *typeMonitor) newObservation(a activity, now time.Time) observation {
	return observation{
		behind: k.listedGoal.version != "" || k.expectedGoal.version != "", missingFor: k.expectedGoal.age(now),
		impatience: k.Impatience, open: a.watch != nil, silentFor: now.Sub(a.lastByte),
		listing: !a.listingSince.IsZero() && now.Sub(a.listingSince) < relistLimit && now.Sub(a.lastProgress) < silenceLimit,
		inState: now.Sub(k.enteredAt), unchangedFor: now.Sub(k.changedAt), comparedAgo: now.Sub(k.comparedAt),
		differs: k.stillDiffers(),
	}
}

// stillDiffers reports whether a difference that the last comparison has shown still exists.
func (k *typeMonitor) stillDiffers() bool {
	if len(k.lacking) > 0 {
		k.lacking.removeHealed(k.Objects())
	}
	return len(k.lacking) > 0 || k.expectedGoal.age(k.comparedAt) >= settleTime
}

// reopenWatch restarts the watch, on a new connection if the client has received nothing since.
func (k *typeMonitor) reopenWatch(ctx context.Context, since, now time.Time) {
	klog.FromContext(ctx).V(2).Info("Reopening a watch that does not deliver", "watch", k.target().String(), "state", k.state, "version", k.Version(), "missing", cmp.Or(k.expectedGoal.version, k.listedGoal.version))
	if k.deps.Transport.reopenWatch(k.target(), since) {
		k.deps.Metrics.reopened.WithLabelValues(k.target().labels()...).Inc()
	}
	k.reopenedAt = now
}

// compareWithList compares the cache with the API server, and reports whether they are equal. An expected
// version that is still missing is a difference. Otherwise the metadata of all objects is listed. A failed
// list shows nothing.
func (k *typeMonitor) compareWithList(ctx context.Context, now time.Time) (equal bool) {
	k.comparedAt = now // A failed list shows nothing about a version that is first missed while the list is read.
	if k.stillDiffers() || now.Before(k.nextComparison) {
		return false
	}
	listed, version, err := k.listAll(ctx, k.listPage)
	if err != nil {
		k.failurePause = min(max(2*k.failurePause, listInterval), equalInterval)
		k.nextComparison = k.deps.Clock.Now().Add(wait.Jitter(k.failurePause, 0.5))
		klog.FromContext(ctx).V(2).Info("Whole list failed, cannot check cache freshness", "watch", k.target().String(), "err", err, "nextTry", k.nextComparison)
		return false
	}
	k.comparedAt, k.failurePause = k.deps.Clock.Now(), 0
	k.lacking, k.nextComparison = differenceTo(listed, version, k.Objects()), k.comparedAt.Add(listInterval)
	if len(k.lacking) > 0 {
		return false
	}
	// The short watch has ended, so it would have delivered.
	if k.deps.Transport.activityOf(k.target()).lastProgress.Sub(k.reopenedAt) >= shortWatch/2 {
		k.nextComparison = k.comparedAt.Add(equalInterval)
	}
	k.equalAt = version
	return true
}

// listPage reads one page of metadata. All pages of a list may take minutes, so the gauges are updated meanwhile.
func (k *typeMonitor) listPage(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { k.setGauges(k.deps.Transport.activityOf(k.target()), k.deps.Clock.Now()) }()
	return k.deps.Metadata.Resource(k.Resource).Namespace(k.Namespace).List(ctx, options)
}
