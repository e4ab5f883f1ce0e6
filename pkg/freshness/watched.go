package freshness

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"minikcm/internal/rv"
)

// listTimeout bounds one metadata list. An API server that needs longer is not one to be judged by.
const listTimeout = 10 * time.Second

// recentTimeout bounds a look at what has happened of late. The API server ends such a watch after recentFor, and sends a bookmark 2 s
// before that: then it is known that there is nothing more.
const (
	recentFor     = 4 * time.Second
	recentTimeout = 6 * time.Second
)

// keeper judges one type again and again. Only its own goroutine touches it.
type keeper struct {
	monitor *Monitor
	Watched
	target watchTarget

	answered  bool      // the last list that was asked for
	listed    time.Time // when the last one that was answered was asked for
	newest    string    // its version
	highest   string    // version of anything that was ever seen; a list cannot be older
	barred    time.Time // since when lists are forbidden; zero: they are not
	goal      string    // oldest version of a list the store has not reached, "" if it has them all
	goalSince time.Time

	missing      string    // version of an object that the store has not reached, "" if none is known
	missingSince time.Time // when it was first missed

	state    freshness
	since    time.Time // it began
	version  string    // of the store, at the last look
	moved    time.Time // the look that last saw the store changed
	before   time.Time // the look before that one: the store changed in between
	looked   time.Time // the last look
	relists  time.Time // its reflector was first seen to list anew, and the store has not moved since; zero: it does not
	roused   time.Time // its watch was last reopened for what it lacks
	compared time.Time // last
	proven   string    // the store was equal to the API server at this version; "": never found so
	lacking  difference
	unshown  string    // version that an object is known to have had and that the store lacked when it was last compared; "": see lacking
	whole    time.Time // when the next whole list may be asked for
	pause    time.Duration
}

func newKeeper(m *Monitor, w Watched) *keeper {
	return &keeper{monitor: m, Watched: w, target: watchTarget{w.Resource, w.Namespace}, version: w.Version(), moved: m.clock.Now(), before: m.clock.Now(), looked: m.clock.Now()}
}

// look is one round: a list if one is due, then the verdict and what it asks for.
func (k *keeper) look(ctx context.Context) {
	now := k.monitor.clock.Now()
	if v := k.Version(); v != k.version {
		k.version, k.moved, k.before = v, now, k.looked
	}
	k.looked = now
	if !k.answered || now.Sub(k.listed) >= k.monitor.cfg.Interval {
		k.ask(ctx, now)
	}
	k.aim(now)
	k.miss(now)
	h := k.monitor.deps.Transport.activityOf(k.target)
	k.tell(h, now)
	if silence := k.monitor.cfg.Silence; !k.barred.IsZero() && now.Sub(k.barred) >= silence && now.Sub(h.lastByte) >= silence {
		k.enter(ctx, stale, now) // another replica may have the right
		k.monitor.setStale(ctx, suspicion{target: k.target}, "its lists are forbidden and its watch is silent")
	}
	if !k.answered {
		return
	}
	next, verdict := k.state.next(k.sight(h, now), k.monitor.cfg)
	switch verdict {
	case compare:
		next = next.found(k.compare(ctx, now))
	case reopen:
		k.reopen(ctx, h, now)
	case declare:
		if k.ask(ctx, now); !k.answered { // nobody could do better
			return
		}
	}
	k.enter(ctx, next, now)
	if next == stale && (verdict == declare || verdict == compare) {
		k.monitor.setStale(ctx, suspicion{target: k.target}, k.reason())
		if verdict == declare || now.Sub(k.roused) >= k.monitor.cfg.Relist {
			k.leave(ctx, h, now)
		}
	}
}

// enter goes into a state.
func (k *keeper) enter(ctx context.Context, next freshness, now time.Time) {
	if next == k.state {
		return
	}
	if k.state == stale {
		k.monitor.setCurrent(ctx, suspicion{target: k.target})
	}
	klog.FromContext(ctx).V(4).Info("Watch", "watch", k.target.String(), "was", k.state, "is", next)
	k.state, k.since = next, now
}

// ask asks for the version of the type now. If there is no answer the next look asks again.
func (k *keeper) ask(ctx context.Context, now time.Time) {
	k.learn(k.Version())
	if k.Expected != nil {
		k.learn(k.Expected())
	}
	version, err := k.latest(ctx, k.page)
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		k.barred = time.Time{}
	} else if k.barred.IsZero() {
		k.barred = now
	}
	if k.answered = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("No judgement without a list", "watch", k.target.String(), "err", err)
		k.enter(ctx, k.state.unanswered(), now)
		return
	}
	if rv.Newer(k.highest, version) {
		k.monitor.setBack(k.target, k.highest, version)
	}
	k.learn(version)
	k.listed, k.newest = now, version
}

// learn takes in a version that the API server has had.
func (k *keeper) learn(version string) {
	if k.highest == "" || rv.Newer(version, k.highest) {
		k.highest = version
	}
}

// aim sets the version the store has to reach next.
func (k *keeper) aim(now time.Time) {
	reached := k.Version()
	if k.proven != "" && rv.MayBeNewer(k.proven, reached) {
		reached = k.proven
	}
	if k.goal != "" && rv.AtLeast(reached, k.goal) {
		k.goal = ""
		if k.state != stale {
			return // the next version gets a time of its own
		}
	}
	if k.goal == "" && k.newest != "" && rv.MayBeNewer(k.newest, reached) {
		k.goal, k.goalSince = k.newest, now
	}
}

// miss notes an object that the store should show.
func (k *keeper) miss(now time.Time) {
	version := k.Version()
	if k.missing != "" && rv.AtLeast(version, k.missing) {
		k.missing = ""
	}
	if k.missing != "" || k.Expected == nil {
		return
	}
	if v := k.Expected(); v != "" && rv.MayBeNewer(v, version) {
		k.missing, k.missingSince = v, now
	}
}

// tell tells the metrics.
func (k *keeper) tell(h activity, now time.Time) {
	silence, behind := 0.0, 0.0
	if !h.lastByte.IsZero() {
		silence = max(0, now.Sub(h.lastByte).Seconds()) // something may have been heard after now was read
	}
	if k.goal != "" {
		behind = now.Sub(k.goalSince).Seconds()
	}
	if !k.answered && !k.listed.IsZero() {
		behind = max(behind, min(silence, now.Sub(k.listed).Seconds()))
	}
	k.monitor.deps.Metrics.silence.WithLabelValues(k.target.labels()...).Set(silence)
	k.monitor.deps.Metrics.behind.WithLabelValues(k.target.labels()...).Set(behind)
}

// sight collects what decides about the next state.
func (k *keeper) sight(h activity, now time.Time) sight {
	switch {
	case !h.listing.After(k.before): // the list has come, or there is none
		k.relists = time.Time{}
	case k.relists.IsZero():
		k.relists = h.listing
	}
	return sight{
		behind:   k.goal != "",
		lacks:    k.lacks(),
		lasts:    now.Sub(k.since),
		still:    now.Sub(k.moved),
		compared: now.Sub(k.compared),
		listing:  !k.relists.IsZero() && now.Sub(k.relists) < k.monitor.cfg.Relist && now.Sub(h.lastProgress) < k.monitor.cfg.Silence,
	}
}

// lacks says whether what the last comparison showed is still missing.
func (k *keeper) lacks() bool {
	if k.unshown != "" {
		return rv.MayBeNewer(k.unshown, k.Version())
	}
	if len(k.lacking) > 0 {
		k.lacking = k.lacking.unhealed(k.Objects())
	}
	return len(k.lacking) > 0
}

// reason says what is missing.
func (k *keeper) reason() string {
	if k.unshown != "" {
		return "no watch has delivered version " + k.unshown + ", which an object is known to have had"
	}
	for key := range k.lacking {
		return fmt.Sprintf("the cache differs from a list in %d objects, one is %s", len(k.lacking), key)
	}
	return "the cache has not been found equal to a list since" // what was missing has come, but who knows what else
}

// reopen gives the watch another chance, on another connection if nothing at all has come on this one for cfg.Silence.
func (k *keeper) reopen(ctx context.Context, h activity, now time.Time) {
	klog.FromContext(ctx).Info("Reopening a watch that does not deliver", "watch", k.target.String(), "heard", h.lastByte, "reason", k.reason())
	k.monitor.deps.Transport.reopen(k.target, now.Add(-k.monitor.cfg.Silence))
	k.roused = now
}

// leave gives the watch another chance on another connection, though others may go on on this one: it may lead to an API server that has nothing for this type only.
// Whatever else is on it has to take another one, too: watches are resumed where they were, lists begin anew. So that is done once in cfg.Relist, the time that
// a list gets.
func (k *keeper) leave(ctx context.Context, h activity, now time.Time) {
	klog.FromContext(ctx).Info("Reopening a watch that does not deliver on another connection", "watch", k.target.String(), "heard", h.lastByte, "reason", k.reason())
	k.monitor.deps.Transport.reopen(k.target, now.Add(time.Hour))
	k.roused = now
}

// compare finds out what the store lacks: an own write that no watch has shown is enough, then what has happened since the store is known
// to be right, and if that cannot be found out, a whole list.
func (k *keeper) compare(ctx context.Context, now time.Time) finding {
	k.compared = now
	switch {
	case k.lacks():
		return differs
	case k.missing != "" && now.Sub(k.missingSince) >= k.monitor.cfg.Settle:
		k.unshown = k.missing
		return differs
	}
	k.unshown, k.lacking = "", nil
	since := k.Version()
	if k.proven != "" && rv.MayBeNewer(k.proven, since) {
		since = k.proven
	}
	diff, version, err := k.recent(ctx, since)
	k.monitor.deps.Metrics.compared.WithLabelValues(append(k.target.labels(), comparedRecent)...).Inc()
	if diff = diff.unhealed(k.Objects()); len(diff) > 0 || version != "" && rv.AtLeast(version, k.goal) {
		return k.learned(diff, version)
	}
	klog.FromContext(ctx).V(2).Info("A new watch shows nothing either", "watch", k.target.String(), "since", since, "err", err)
	if now.Before(k.whole) {
		return unknown
	}
	listed, version, err := k.all(ctx, k.page)
	k.monitor.deps.Metrics.compared.WithLabelValues(append(k.target.labels(), comparedWhole)...).Inc()
	now = k.monitor.clock.Now()
	if err != nil {
		k.pause = min(max(2*k.pause, k.monitor.cfg.Interval), k.monitor.cfg.Rest)
		k.whole = now.Add(wait.Jitter(k.pause, 0.5))
		klog.FromContext(ctx).V(2).Info("No judgement without a whole list", "watch", k.target.String(), "err", err, "nextTry", k.whole)
		return unknown
	}
	f := k.learned(compareSets(listed, version, k.Objects()), version)
	if k.pause, k.whole = 0, now.Add(k.monitor.cfg.Interval); f == equal {
		k.whole = now.Add(k.monitor.cfg.Rest)
	}
	return f
}

// learned is what a comparison with a version has shown.
func (k *keeper) learned(diff difference, version string) finding {
	if k.lacking = diff; len(diff) > 0 {
		return differs
	}
	k.proven = version
	return equal
}

// recent asks for what has happened since a version. A new watch shows it at once, and then a bookmark says that this was all; without
// bookmarks the version is empty, and nobody knows.
func (k *keeper) recent(ctx context.Context, since string) (diff difference, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, recentTimeout)
	defer cancel()
	seconds := int64(recentFor / time.Second)
	events, err := k.monitor.deps.Metadata.Resource(k.Resource).Namespace(k.Namespace).Watch(ctx,
		metav1.ListOptions{ResourceVersion: since, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		return nil, "", fmt.Errorf("watch %v: %w", k.target, err)
	}
	defer events.Stop()
	diff = difference{}
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return diff, "", fmt.Errorf("watch %v: %w", k.target, apierrors.FromObject(event.Object))
		}
		item, err := meta.Accessor(event.Object)
		if err != nil {
			return diff, "", fmt.Errorf("watch %v: %w", k.target, err)
		}
		v := ObjectVersion{item.GetNamespace(), item.GetName(), item.GetUID(), item.GetResourceVersion()}
		switch event.Type {
		case watch.Bookmark:
			return diff, v.ResourceVersion, nil
		case watch.Deleted:
			diff[v.key()] = gone(v.key(), v.ResourceVersion)
		default:
			diff[v.key()] = v
		}
	}
	return diff, "", nil
}

// page asks for one page of a list. All of them may take minutes, so the gauges are kept up to date meanwhile.
func (k *keeper) page(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { k.tell(k.monitor.deps.Transport.activityOf(k.target), k.monitor.clock.Now()) }()
	return k.monitor.deps.Metadata.Resource(k.Resource).Namespace(k.Namespace).List(ctx, options)
}
