package leadership

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// listTimeout bounds one metadata list. An API server that needs longer is not one to be judged by.
const listTimeout = 10 * time.Second

// pageSize of a whole list: client-go's default.
const pageSize = 500

// monitor judges one type again and again. Only its own goroutine touches it.
type monitor struct {
	l *Liveness
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

	reopened   time.Time // when the watch was reopened because of the goal; zero: it was not
	reopenedAt string    // version of the store then
	diff       difference
	compared   time.Time // when the diff was found, or the last comparison of a stale store was made
	stale      bool
}

// look is one round: a list if one is due, then the verdict and what it asks for.
func (m *monitor) look(ctx context.Context) {
	now := m.l.clock.Now()
	if !m.answered || now.Sub(m.listed) >= m.l.cfg.Interval {
		m.ask(ctx, now)
	}
	if !m.answered {
		return
	}
	m.aim(m.Version(), now)
	m.miss(m.Version(), now)
	h := m.l.deps.Streams.hear(m.target)
	switch judge(m.sight(h, now), m.l.cfg) {
	case fine:
		m.forget(ctx)
	case reopen:
		klog.FromContext(ctx).Info("Reopening a silent watch", "watch", m.target.String(), "since", h.heard)
		m.l.deps.Streams.reopen(m.target, now.Add(-m.l.cfg.Silence))
		m.reopened, m.reopenedAt, m.diff = now, m.Version(), nil
	case compare:
		m.compare(ctx, now)
	}
}

// ask asks for the version of the type now. If there is no answer the next look asks again.
func (m *monitor) ask(ctx context.Context, now time.Time) {
	m.learn(m.Version())
	if m.Expected != nil {
		m.learn(m.Expected())
	}
	version, err := m.latest(ctx)
	if m.answered = err == nil; err != nil {
		klog.FromContext(ctx).V(2).Info("No judgement without a list", "watch", m.target.String(), "err", err)
		m.begin()
		return
	}
	if older(version, m.highest) {
		m.l.setBack(m.target, m.highest, version)
	}
	m.learn(version)
	m.listed, m.newest = now, version
}

// learn takes in a version that the API server has had.
func (m *monitor) learn(version string) {
	if m.highest == "" || older(m.highest, version) {
		m.highest = version
	}
}

// begin starts an episode anew: an API server that does not answer lists does not deliver either, and what a watch has not shown for that
// time is not held against it. Only what was found stale stays so until the store has it all.
func (m *monitor) begin() {
	m.goal, m.missing, m.reopened, m.diff = "", "", time.Time{}, nil
}

// aim sets the version the store has to reach next.
func (m *monitor) aim(version string, now time.Time) {
	if m.goal != "" && !newer(m.goal, version) {
		m.goal = ""
	}
	if m.goal == "" && m.newest != "" && newer(m.newest, version) {
		m.goal, m.goalSince = m.newest, now
	}
}

// miss notes an object that the store should show.
func (m *monitor) miss(version string, now time.Time) {
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

// sight collects what judge needs, and tells the silence to the metrics.
func (m *monitor) sight(h hearing, now time.Time) sight {
	s := sight{stale: m.stale}
	if m.goal != "" {
		s.behind = max(now.Sub(m.goalSince), 1)
	}
	s.silent = s.behind // no watch at all: as long as it has been missed
	if h.open {
		s.silent = now.Sub(h.heard)
	}
	// Something may have been heard after now was read.
	m.l.deps.Metrics.silence.WithLabelValues(m.target.labels()...).Set(max(0, s.silent.Seconds()))
	if !m.reopened.IsZero() {
		s.reopened = max(now.Sub(m.reopened), 1)
		s.moved = m.Version() != m.reopenedAt
	}
	return s
}

// forget ends an episode: the store is current, or moves.
func (m *monitor) forget(ctx context.Context) {
	m.reopened, m.diff = time.Time{}, nil
	if m.stale {
		m.stale = false
		m.l.setCurrent(ctx, suspicion{target: m.target})
	}
}

// compare asks a whole list. A difference that does not heal within the settle time is staleness.
func (m *monitor) compare(ctx context.Context, now time.Time) {
	switch {
	case !m.stale && now.Sub(m.compared) < m.l.cfg.Settle:
		return
	case !m.stale && m.missing != "" && now.Sub(m.missingSince) >= m.l.cfg.Settle:
		if m.ask(ctx, now); m.answered {
			m.compared, m.stale = now, true
			m.l.setStale(ctx, suspicion{target: m.target}, "no watch has delivered version "+m.missing+", which an object is known to have had")
		}
		return
	case m.diff != nil && !m.stale:
		if left := m.diff.unhealed(m.Objects()); len(left) > 0 {
			if m.ask(ctx, now); m.answered {
				m.declare(ctx, left)
			}
			return
		}
	case m.stale && now.Sub(m.compared) < m.l.cfg.Interval:
		return
	}
	listed, version, err := m.list(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No judgement without a whole list", "watch", m.target.String(), "err", err)
		return
	}
	m.compared = now
	m.diff = compareSets(listed, version, m.Objects())
	switch {
	case len(m.diff) == 0 && !m.stale && now.Sub(m.reopened) < m.l.cfg.Silence:
		// It may be chance, for as long as no bookmark has come: a store without a pod is right whenever all pods have just been deleted.
	case len(m.diff) == 0: // as good as if the store had that version
		m.goal, m.newest = "", ""
		m.forget(ctx)
	case m.stale:
		m.declare(ctx, m.diff)
		m.rouse(now)
	}
}

// declare says the type is stale.
func (m *monitor) declare(ctx context.Context, diff difference) {
	m.stale = true
	for key := range diff {
		why := fmt.Sprintf("the cache differs from a list in %d objects, one is %s", len(diff), key)
		m.l.setStale(ctx, suspicion{target: m.target}, why)
		return
	}
}

// rouse reopens the watch of a stale type once more if it has been silent again.
func (m *monitor) rouse(now time.Time) {
	if h := m.l.deps.Streams.hear(m.target); h.open && now.Sub(h.heard) >= m.l.cfg.Silence {
		m.l.deps.Streams.reopen(m.target, now.Add(-m.l.cfg.Silence))
		m.reopened, m.reopenedAt = now, m.Version()
	}
}

// latest asks for the version of the type now: a consistent list, cut to one object.
func (m *monitor) latest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := m.l.deps.Metadata.Resource(m.Resource).Namespace(m.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list %v: %w", m.target, err)
	}
	return list.ResourceVersion, nil
}

// list asks for the metadata of all objects, as of one version.
func (m *monitor) list(ctx context.Context) (all []ObjectVersion, version string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		pageCtx, cancel := context.WithTimeout(ctx, listTimeout)
		page, err := m.l.deps.Metadata.Resource(m.Resource).Namespace(m.Namespace).List(pageCtx, options)
		cancel()
		if err != nil {
			return nil, "", fmt.Errorf("list all %v: %w", m.target, err)
		}
		if version == "" {
			version = page.ResourceVersion
		}
		for i := range page.Items {
			item := &page.Items[i]
			all = append(all, ObjectVersion{item.Namespace, item.Name, item.UID, item.ResourceVersion})
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, version, nil
		}
	}
}
