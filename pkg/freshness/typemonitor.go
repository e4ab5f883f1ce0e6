package freshness

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"minikcm/internal/rv"
)

// listTimeout bounds one page of metadata. A slower API server proves nothing.
const listTimeout = 10 * time.Second

// typeMonitor checks one type. All fields belong to the goroutine of run.
type typeMonitor struct {
	*Monitor
	Watched
	target watchTarget

	listed         bool      // The last consistent list succeeded.
	requestedAt    time.Time // Of the last consistent list.
	listedAt       time.Time // Of the last consistent list that succeeded.
	listedVersion  string    // Of that list.
	highestVersion string    // Of all known versions. No list can be older.
	forbiddenSince time.Time // Zero if lists are not forbidden.
	goal           string    // The oldest listed version that the cache has not reached, or empty.
	goalSince      time.Time
	missing        string // The expected version that the cache has not reached, or empty.
	missingSince   time.Time

	state          cacheState
	enteredAt      time.Time
	version        string // Of the cache, at the last check.
	changedAt      time.Time
	reopenedAt     time.Time
	comparedAt     time.Time
	nextComparison time.Time // The earliest time of the next whole list.
	backoff        utilwait.Backoff
	equalAt        string // The version at which the cache was found equal to a list.
	lacking        difference
	undelivered    string // The missing version at the last comparison.
}

func newTypeMonitor(m *Monitor, w Watched) *typeMonitor {
	k := &typeMonitor{Monitor: m, Watched: w, target: watchTarget{w.Resource, w.Namespace}, version: w.Version(), changedAt: m.deps.Clock.Now()}
	k.resetBackoff()
	return k
}

func (k *typeMonitor) resetBackoff() {
	k.backoff = utilwait.Backoff{Duration: listInterval, Factor: 2, Jitter: 0.5, Cap: equalInterval, Steps: 10}
}

func (k *typeMonitor) run(ctx context.Context) error {
	ticker := k.deps.Clock.NewTicker(cmp.Or(k.Impatience/6, settleTime/2))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if err := k.checkType(ctx); err != nil {
				return err
			}
		}
	}
}

// checkType decides about the type. The error has ErrSetBack.
func (k *typeMonitor) checkType(ctx context.Context) error {
	// 1. Compare the version of the cache with the version of the API server and with own writes.
	now := k.deps.Clock.Now()
	if v := k.Version(); v != k.version {
		k.version, k.changedAt = v, now
	}
	if since := now.Sub(k.requestedAt); since >= listInterval || !k.listed && since >= settleTime/2 {
		if err := k.fetchVersion(ctx, now); err != nil {
			return err
		}
	}
	k.updateGoal(now)
	k.updateMissing(now)
	a := k.deps.Transport.activityOf(k.target)
	k.setGauges(a, now)
	// 2. Another replica may have the right to list.
	if !k.forbiddenSince.IsZero() && min(now.Sub(k.forbiddenSince), now.Sub(a.lastByte)) >= silenceLimit {
		k.enterState(ctx, stale, now)
		k.setStale(ctx, k.target, "its lists are forbidden and its watch is silent")
	}
	if !k.listed {
		return nil
	}
	// 3. Decide and act.
	next, act := k.state.nextState(k.newObservation(a, now))
	switch act {
	case reopen:
		k.reopenWatch(ctx, now.Add(-cmp.Or(k.Impatience, silenceLimit)), now)
	case compare:
		if k.compareWithList(ctx, now) {
			next = current
		}
	case declare: // Only if the API server still returns lists.
		if err := k.fetchVersion(ctx, now); err != nil || !k.listed {
			return err
		}
	}
	k.enterState(ctx, next, now)
	if next == stale && act != noAction {
		k.setStale(ctx, k.target, k.staleReason())
		if act == declare || now.Sub(k.reopenedAt) >= cmp.Or(k.Impatience, relistLimit) {
			// Use another connection: the present connection may lead to an API server without events of this type.
			k.reopenWatch(ctx, now.Add(time.Hour), now)
		}
	}
	return nil
}

func (k *typeMonitor) enterState(ctx context.Context, next cacheState, now time.Time) {
	if next == k.state {
		return
	}
	if k.state == stale {
		k.setCurrent(ctx, k.target)
	}
	if next == current || next == behind {
		k.lacking, k.undelivered = nil, ""
	}
	klog.FromContext(ctx).V(4).Info("Watch state changed", "watch", k.target.String(), "from", k.state, "to", next)
	k.state, k.enteredAt = next, now
}

// fetchVersion reads the latest resourceVersion with a limit=1 list. A failed list shows that watches do
// not deliver either, so a type that is not stale becomes current.
func (k *typeMonitor) fetchVersion(ctx context.Context, now time.Time) error {
	k.learnVersion(k.Version())
	if k.Expected != nil {
		k.learnVersion(k.Expected())
	}
	k.requestedAt = now
	version, err := k.latestVersion(ctx, k.listPage)
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		k.forbiddenSince = time.Time{}
	} else if k.forbiddenSince.IsZero() {
		k.forbiddenSince = now
	}
	if k.listed = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("List failed, cannot check cache freshness", "watch", k.target.String(), "err", err)
		if k.state != stale {
			k.missing = ""
			k.enterState(ctx, current, now)
		}
		return nil
	}
	if rv.Newer(k.highestVersion, version) {
		return fmt.Errorf("%w: %v had resourceVersion %s and now has %s", ErrSetBack, k.target, k.highestVersion, version)
	}
	k.learnVersion(version)
	k.listedAt, k.listedVersion = now, version
	return nil
}

func (k *typeMonitor) learnVersion(version string) {
	if k.highestVersion == "" || rv.Newer(version, k.highestVersion) {
		k.highestVersion = version
	}
}

// updateGoal sets the version of a list that the cache has to reach next.
func (k *typeMonitor) updateGoal(now time.Time) {
	reached := k.Version()
	if k.equalAt != "" && rv.MayBeNewer(k.equalAt, reached) {
		reached = k.equalAt
	}
	if k.goal != "" && rv.AtLeast(reached, k.goal) {
		k.goal = ""
		if k.state != stale {
			return // The next version gets the full time.
		}
	}
	if k.goal == "" && k.listedVersion != "" && rv.MayBeNewer(k.listedVersion, reached) {
		k.goal, k.goalSince = k.listedVersion, now
	}
}

func (k *typeMonitor) updateMissing(now time.Time) {
	version := k.Version()
	if k.missing != "" && rv.AtLeast(version, k.missing) {
		k.missing = ""
		return // The next version gets the full time.
	}
	if k.missing != "" || k.Expected == nil {
		return
	}
	if v := k.Expected(); v != "" && rv.MayBeNewer(v, version) {
		k.missing, k.missingSince = v, now
	}
}

func (k *typeMonitor) setGauges(a activity, now time.Time) {
	idle, lag := 0.0, 0.0
	if !a.lastByte.IsZero() {
		idle = max(0, now.Sub(a.lastByte).Seconds()) // The last byte may have come after now was read.
	}
	if k.goal != "" {
		lag = now.Sub(k.goalSince).Seconds()
	}
	if !k.listed && !k.listedAt.IsZero() {
		lag = max(lag, min(idle, now.Sub(k.listedAt).Seconds()))
	}
	k.deps.Metrics.idle.WithLabelValues(k.target.labels()...).Set(idle)
	k.deps.Metrics.lag.WithLabelValues(k.target.labels()...).Set(lag)
}

func (k *typeMonitor) newObservation(a activity, now time.Time) observation {
	o := observation{
		behind: k.goal != "" || k.missing != "", impatience: k.Impatience, open: a.open, silent: now.Sub(a.lastByte),
		listing: !a.listingSince.IsZero() && now.Sub(a.listingSince) < relistLimit && now.Sub(a.lastProgress) < silenceLimit,
		inState: now.Sub(k.enteredAt), unchanged: now.Sub(k.changedAt), compared: now.Sub(k.comparedAt),
		differs: k.stillDiffers(), mayCompare: !now.Before(k.nextComparison),
	}
	if k.missing != "" {
		o.missing = now.Sub(k.missingSince)
	}
	return o
}

// stillDiffers reports whether a difference that the last comparison has shown still exists.
func (k *typeMonitor) stillDiffers() bool {
	if k.undelivered != "" {
		return rv.MayBeNewer(k.undelivered, k.Version())
	}
	if len(k.lacking) > 0 {
		k.lacking.removeHealed(k.Objects())
	}
	return len(k.lacking) > 0
}

func (k *typeMonitor) staleReason() string {
	if len(k.lacking) == 0 {
		return "no watch has delivered version " + cmp.Or(k.undelivered, k.missing, k.goal)
	}
	for key := range k.lacking {
		return fmt.Sprintf("the cache differs from a list in %d objects, one is %s", len(k.lacking), key)
	}
	return ""
}

// reopenWatch restarts the watch, on a new connection if the client has received nothing since.
func (k *typeMonitor) reopenWatch(ctx context.Context, since, now time.Time) {
	verbosity := 0
	if k.missing == "" && k.state == behind { // Normal for a quiet type behind a proxy that ends idle streams.
		verbosity = 2
	}
	klog.FromContext(ctx).V(verbosity).Info("Reopening a watch that does not deliver", "watch", k.target.String(), "state", k.state, "version", k.Version(), "missing", cmp.Or(k.missing, k.goal))
	k.deps.Transport.reopenWatches(k.target, since)
	k.reopenedAt = now
}

// compareWithList compares the cache with the API server, and reports whether they are equal. An expected
// version that is still missing is a difference. Otherwise the metadata of all objects is listed. A failed
// list shows nothing.
func (k *typeMonitor) compareWithList(ctx context.Context, now time.Time) (equal bool) {
	if k.stillDiffers() {
		k.comparedAt = now
		return false
	}
	if k.undelivered, k.lacking = "", nil; k.missing != "" && now.Sub(k.missingSince) >= settleTime {
		k.comparedAt, k.undelivered = now, k.missing
		return false
	}
	if now.Before(k.nextComparison) {
		return false
	}
	listed, version, err := k.listAll(ctx, k.listPage)
	k.comparedAt = k.deps.Clock.Now()
	if err != nil {
		k.nextComparison = k.comparedAt.Add(k.backoff.Step())
		klog.FromContext(ctx).V(2).Info("Whole list failed, cannot check cache freshness", "watch", k.target.String(), "err", err, "nextTry", k.nextComparison)
		return false
	}
	k.resetBackoff()
	k.lacking, k.nextComparison = differenceTo(listed, version, k.Objects()), k.comparedAt.Add(listInterval)
	if len(k.lacking) > 0 {
		return false
	}
	// The short watch has ended, so it would have delivered.
	if k.deps.Transport.activityOf(k.target).lastProgress.Sub(k.reopenedAt) >= shortWatch/2 {
		k.nextComparison = k.comparedAt.Add(equalInterval)
	}
	k.equalAt = version
	return true
}

// listPage reads one page of metadata. All pages of a list may take minutes, so the gauges are updated meanwhile.
func (k *typeMonitor) listPage(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { k.setGauges(k.deps.Transport.activityOf(k.target), k.deps.Clock.Now()) }()
	return k.deps.Metadata.Resource(k.Resource).Namespace(k.Namespace).List(ctx, options)
}
