package freshness

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// listTimeout bounds one metadata list. An API server that needs longer is not one to be judged by.
const listTimeout = 10 * time.Second

// pageSize of a whole list: client-go's default.
const pageSize = 500

// recentTimeout bounds a look at what has happened of late. The API server ends such a watch after recentFor, and sends a bookmark 2 s
// before that: then it is known that there is nothing more.
const (
	recentFor     = 4 * time.Second
	recentTimeout = 6 * time.Second
)

// keeper judges one type again and again. Only its own goroutine touches it.
type keeper struct {
	l *Monitor
	Watched
	target watchTarget

	answered  bool      // the last list that was asked for
	listed    time.Time // when the last one that was answered was asked for
	newest    string    // its version
	highest   string    // version of anything that was ever seen; a list cannot be older
	goal      string    // oldest version of a list the store has not reached, "" if it has them all
	goalSince time.Time

	missing      string    // version of an object that the store has not reached, "" if none is known
	missingSince time.Time // when it was first missed

	state    freshness
	since    time.Time // it began
	version  string    // of the store, at the last look
	moved    time.Time // when the store was last seen to have changed
	before   time.Time // the look before that
	looked   time.Time // the last look
	relists  time.Time // its reflector was first seen to list anew, and the store has not moved since; zero: it does not
	roused   time.Time // its watch was last reopened because of this
	compared time.Time // last
	proven   string    // the store was equal to the API server at this version; "": never found so
	lacking  difference
	unshown  string    // version of an object that the store lacked when it was compared; "": the difference tells
	whole    time.Time // when the next whole list may be asked for
	pause    time.Duration
}

func newKeeper(l *Monitor, w Watched) *keeper {
	return &keeper{l: l, Watched: w, target: watchTarget{w.Resource, w.Namespace}, version: w.Version(), moved: l.clock.Now(), before: l.clock.Now(), looked: l.clock.Now()}
}

// look is one round: a list if one is due, then the verdict and what it asks for.
func (m *keeper) look(ctx context.Context) {
	now := m.l.clock.Now()
	if v := m.Version(); v != m.version {
		m.version, m.moved, m.before = v, now, m.looked
	}
	m.looked = now
	if !m.answered || now.Sub(m.listed) >= m.l.cfg.Interval {
		m.ask(ctx, now)
	}
	m.aim(now)
	m.miss(now)
	h := m.l.deps.Streams.hear(m.target)
	m.tell(h, now)
	if !m.answered {
		return
	}
	next, verdict := m.state.next(m.sight(h, now), m.l.cfg)
	switch verdict {
	case compare:
		next = next.found(m.compare(ctx, now))
	case reopen:
		m.reopen(ctx, h, now)
	case declare:
		if m.ask(ctx, now); !m.answered { // nobody could do better
			return
		}
	}
	m.enter(ctx, next, now)
	if next == stale && (verdict == declare || verdict == compare) {
		m.l.setStale(ctx, suspicion{target: m.target}, m.reason())
		m.rouse(ctx, h, now)
	}
}

// enter goes into a state.
func (m *keeper) enter(ctx context.Context, next freshness, now time.Time) {
	if next == m.state {
		return
	}
	if m.state == stale {
		m.l.setCurrent(ctx, suspicion{target: m.target})
	}
	klog.FromContext(ctx).V(4).Info("Watch", "watch", m.target.String(), "was", m.state, "is", next)
	m.state, m.since = next, now
}

// ask asks for the version of the type now. If there is no answer the next look asks again.
func (m *keeper) ask(ctx context.Context, now time.Time) {
	m.learn(m.Version())
	if m.Expected != nil {
		m.learn(m.Expected())
	}
	version, err := m.latest(ctx, m.page)
	if m.answered = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("No judgement without a list", "watch", m.target.String(), "err", err)
		m.missing = ""
		m.enter(ctx, m.state.unanswered(), now)
		return
	}
	if older(version, m.highest) {
		m.l.setBack(m.target, m.highest, version)
	}
	m.learn(version)
	m.listed, m.newest = now, version
}

// learn takes in a version that the API server has had.
func (m *keeper) learn(version string) {
	if m.highest == "" || older(m.highest, version) {
		m.highest = version
	}
}

// aim sets the version the store has to reach next.
func (m *keeper) aim(now time.Time) {
	reached := m.Version()
	if m.proven != "" && newer(m.proven, reached) {
		reached = m.proven
	}
	if m.goal != "" && !newer(m.goal, reached) {
		m.goal = ""
		if m.state != stale {
			return // the next version gets a time of its own
		}
	}
	if m.goal == "" && m.newest != "" && newer(m.newest, reached) {
		m.goal, m.goalSince = m.newest, now
	}
}

// miss notes an object that the store should show.
func (m *keeper) miss(now time.Time) {
	version := m.Version()
	if m.missing != "" && !newer(m.missing, version) {
		m.missing = ""
	}
	if m.missing != "" || m.Expected == nil {
		return
	}
	if v := m.Expected(); v != "" && newer(v, version) {
		m.missing, m.missingSince = v, now
	}
}

// tell tells the metrics.
func (m *keeper) tell(h hearing, now time.Time) {
	silence, behind := 0.0, 0.0
	if !h.heard.IsZero() {
		silence = max(0, now.Sub(h.heard).Seconds()) // something may have been heard after now was read
	}
	if m.goal != "" {
		behind = now.Sub(m.goalSince).Seconds()
	}
	m.l.deps.Metrics.silence.WithLabelValues(m.target.labels()...).Set(silence)
	m.l.deps.Metrics.behind.WithLabelValues(m.target.labels()...).Set(behind)
}

// sight collects what decides about the next state.
func (m *keeper) sight(h hearing, now time.Time) sight {
	switch {
	case !h.listing.After(m.before): // the list has come, or there is none
		m.relists = time.Time{}
	case m.relists.IsZero():
		m.relists = h.listing
	}
	return sight{
		behind:   m.goal != "",
		lacks:    m.lacks(),
		lasts:    now.Sub(m.since),
		still:    now.Sub(m.moved),
		compared: now.Sub(m.compared),
		listing:  !m.relists.IsZero() && now.Sub(m.relists) < m.l.cfg.Relist && now.Sub(h.answered) < m.l.cfg.Silence,
	}
}

// lacks says whether what the last comparison showed is still missing.
func (m *keeper) lacks() bool {
	if m.unshown != "" {
		return newer(m.unshown, m.Version())
	}
	if len(m.lacking) > 0 {
		m.lacking = m.lacking.unhealed(m.Objects())
	}
	return len(m.lacking) > 0
}

// reason says what is missing.
func (m *keeper) reason() string {
	if m.unshown != "" {
		return "no watch has delivered version " + m.unshown + ", which an object is known to have had"
	}
	for key := range m.lacking {
		return fmt.Sprintf("the cache differs from a list in %d objects, one is %s", len(m.lacking), key)
	}
	return "the cache has not been found equal to a list since" // what was missing has come, but who knows what else
}

// reopen gives the watch another chance.
func (m *keeper) reopen(ctx context.Context, h hearing, now time.Time) {
	klog.FromContext(ctx).Info("Reopening a watch that does not deliver", "watch", m.target.String(), "heard", h.heard, "reason", m.reason())
	m.l.deps.Streams.reopen(m.target, now.Add(-m.l.cfg.Silence))
	m.roused = now
}

// rouse reopens the watch of a stale type once more if it has been silent again.
func (m *keeper) rouse(ctx context.Context, h hearing, now time.Time) {
	if now.Sub(later(h.heard, m.roused)) >= m.l.cfg.Silence {
		m.reopen(ctx, h, now)
	}
}

// compare finds out what the store lacks: an own write that no watch has shown is enough, then what has happened since the store is known
// to be right, and if that cannot be found out, a whole list.
func (m *keeper) compare(ctx context.Context, now time.Time) finding {
	m.compared = now
	switch {
	case m.lacks():
		return differs
	case m.missing != "" && now.Sub(m.missingSince) >= m.l.cfg.Settle:
		m.unshown = m.missing
		return differs
	}
	m.unshown, m.lacking = "", nil
	since := m.Version()
	if m.proven != "" && newer(m.proven, since) {
		since = m.proven
	}
	diff, version, err := m.recent(ctx, since)
	m.l.deps.Metrics.compared.WithLabelValues(append(m.target.labels(), comparedRecent)...).Inc()
	if diff = diff.unhealed(m.Objects()); len(diff) > 0 || version != "" && !newer(m.goal, version) {
		return m.learned(diff, version)
	}
	klog.FromContext(ctx).V(2).Info("A new watch shows nothing either", "watch", m.target.String(), "since", since, "err", err)
	if now.Before(m.whole) {
		return unknown
	}
	listed, version, err := m.all(ctx, m.page)
	m.l.deps.Metrics.compared.WithLabelValues(append(m.target.labels(), comparedWhole)...).Inc()
	now = m.l.clock.Now()
	if err != nil {
		m.pause = min(max(2*m.pause, m.l.cfg.Interval), m.l.cfg.Rest)
		m.whole = now.Add(between(m.pause, 1, 1.5))
		klog.FromContext(ctx).V(2).Info("No judgement without a whole list", "watch", m.target.String(), "err", err, "nextTry", m.whole)
		return unknown
	}
	f := m.learned(compareSets(listed, version, m.Objects()), version)
	if m.pause, m.whole = 0, now.Add(m.l.cfg.Interval); f == equal {
		m.whole = now.Add(m.l.cfg.Rest)
	}
	return f
}

// learned is what a comparison with a version has shown.
func (m *keeper) learned(diff difference, version string) finding {
	if m.lacking = diff; len(diff) > 0 {
		return differs
	}
	m.proven = version
	return equal
}

// recent asks for what has happened since a version. A new watch shows it at once, and then a bookmark says that this was all; without
// bookmarks the version is empty, and nobody knows.
func (m *keeper) recent(ctx context.Context, since string) (diff difference, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, recentTimeout)
	defer cancel()
	seconds := int64(recentFor / time.Second)
	events, err := m.l.deps.Metadata.Resource(m.Resource).Namespace(m.Namespace).Watch(ctx,
		metav1.ListOptions{ResourceVersion: since, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		return nil, "", fmt.Errorf("watch %v: %w", m.target, err)
	}
	defer events.Stop()
	diff = difference{}
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return diff, "", fmt.Errorf("watch %v: %w", m.target, apierrors.FromObject(event.Object))
		}
		item, err := meta.Accessor(event.Object)
		if err != nil {
			return diff, "", fmt.Errorf("watch %v: %w", m.target, err)
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

// page asks for one page of a list. There may be minutes of them.
func (m *keeper) page(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	defer func() { m.tell(m.l.deps.Streams.hear(m.target), m.l.clock.Now()) }()
	return m.l.deps.Metadata.Resource(m.Resource).Namespace(m.Namespace).List(ctx, options)
}
