package freshness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Watched is one informer as Monitor sees it.
type Watched struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all
	// Version is the resourceVersion the store has applied, "" before the first list.
	Version func() string
	// Expected is the highest version that some object of the type is known to have had: a watch that works delivers it at once,
	// while the version of a list may never come. Empty: none is known; nil: never.
	Expected func() string
	// Objects is what the store holds now. It is called seldom, and its result may be large.
	Objects func() []ObjectVersion
}

// Config says how long silence is trusted. Zero fields take the default in their comment.
type Config struct {
	Interval time.Duration // between two consistent lists of a type; 30 s
	Silence  time.Duration // in which a cache that is behind must move; 90 s: bookmarks come every 60 s
	Lag      time.Duration // after which a cache that moves is doubted too, if it still misses the same version; 3 min
	Settle   time.Duration // for a difference to heal, or a reopened watch to deliver; 10 s
	Rest     time.Duration // between two whole lists of a type that was found equal; 10 min
	Relist   time.Duration // for which a reflector that lists anew, and gets answers, is not doubted, and between two reopenings for a type that stays stale; 10 min
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Interval, 30 * time.Second}, {&c.Silence, 90 * time.Second}, {&c.Lag, 3 * time.Minute}, {&c.Settle, 10 * time.Second},
		{&c.Rest, 10 * time.Minute}, {&c.Relist, 10 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c
}

// Deps are what Monitor works with.
type Deps struct {
	Metadata  metadata.Interface // not through the Transport: it must get answers when watches do not
	Transport *Transport
	Election  Election
	Metrics   *Metrics
	Clock     clock.WithTicker // nil: the real one

	// The watch of our own Lease tells of its silence sooner: something is written there every RetryPeriod. Zero: there is no election.
	LeaseNamespace string
	RetryPeriod    time.Duration
}

// Election is what Monitor asks of the elector.
type Election interface {
	// StepDown ends the term and stays out until caughtUp, or until nobody else has taken the lease.
	StepDown(reason string, caughtUp func() bool)
	// LeaseLag is how many versions of our Lease were seen by requests since its watch last delivered one, which version that was, and when
	// it was first missed.
	LeaseLag() (ahead int, delivered string, since time.Time)
	// LeaseReopened starts that count anew.
	LeaseReopened()
}

// ErrSetBack is in the error of Run when a consistent list was older than something that had been seen before it was asked for. So it is
// after etcd was restored from a backup. Watches then wait for versions that may be days away, caches hold what no longer exists, and what
// controllers remember of their own writes never happened.
var ErrSetBack = errors.New("the API server's data were set back, as after a restore of etcd, and caches have to be filled anew")

// Monitor notices informers that see nothing, in whatever way: connections that carry nothing, new ones that cannot be made, streams that
// are cut before anything comes, an API server whose watches have stopped. All look alike from here: lists have versions that the cache
// does not reach, and it does not move. Then it is compared: with what a new watch shows of the time since, and if that shows nothing at
// all with a whole list. A difference that does not heal has the watch reopened. A type that still lacks it is stale, and then the
// elector steps down until it is current again.
//
// Lag alone is never staleness, nor is a cache that is being filled anew. Nor is an API server that does not answer: nothing is judged
// without a list, or renewals, that have just succeeded. Those same answers are what says that another process, or this one after a
// fresh start, could do better.
type Monitor struct {
	cfg     Config
	deps    Deps
	clock   clock.WithTicker
	watched []Watched

	abort context.CancelCauseFunc // ends Run; set by it

	lock  sync.Mutex
	stale map[suspicion]string // why
}

// New returns a monitor of the given informers; it does nothing before Run.
func New(cfg Config, deps Deps, watched []Watched) *Monitor {
	m := &Monitor{cfg: cfg.withDefaults(), deps: deps, clock: deps.Clock, watched: watched, stale: map[suspicion]string{}}
	if m.clock == nil {
		m.clock = clock.RealClock{}
	}
	for _, w := range watched {
		deps.Metrics.watching(watchTarget{w.Resource, w.Namespace})
	}
	return m
}

// Run watches until ctx ends, and then returns nil. Start it when the caches have synced. An error with ErrSetBack means that only a
// new start helps.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, m.abort = context.WithCancelCause(ctx)
	defer m.abort(nil)
	var all sync.WaitGroup
	for _, w := range m.watched {
		k := newKeeper(m, w)
		all.Go(func() { m.every(ctx, m.cfg.Settle/2, k.look) })
	}
	if m.deps.RetryPeriod > 0 {
		c := newCanary(m)
		all.Go(func() { m.every(ctx, m.deps.RetryPeriod/2, c.look) })
	}
	all.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, ErrSetBack) {
		return cause
	}
	return nil
}

// setBack ends Run because a list had a version older than what was seen before.
func (m *Monitor) setBack(what watchTarget, seen, list string) {
	m.abort(fmt.Errorf("%w: %v had resourceVersion %s and now has %s", ErrSetBack, what, seen, list))
}

// every calls look again and again until ctx ends.
func (m *Monitor) every(ctx context.Context, period time.Duration, look func(context.Context)) {
	ticker := m.clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			look(ctx)
		}
	}
}

// Stale returns a sentence per stale type, sorted; nothing if all are current.
func (m *Monitor) Stale() []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Sorted(maps.Values(m.stale))
}

// Name is the name of the readiness check.
func (m *Monitor) Name() string { return "watches" }

// Check fails while a type is stale and names it. It belongs to readiness, not to liveness.
func (m *Monitor) Check(*http.Request) error {
	if stale := m.Stale(); len(stale) > 0 {
		return fmt.Errorf("stale caches: %s", strings.Join(stale, "; "))
	}
	return nil
}

// suspicion is what made a watch stale: a watch can be found so in two ways at once.
type suspicion struct {
	target watchTarget
	canary bool
}

// setStale notes a stale watch and steps down. Called again while it lasts, it steps down again, unless nobody else
// took the lease the last time.
func (m *Monitor) setStale(ctx context.Context, what suspicion, why string) {
	why = what.target.String() + ": " + why
	m.lock.Lock()
	_, known := m.stale[what]
	m.stale[what] = why
	m.lock.Unlock()
	m.deps.Metrics.stale.WithLabelValues(what.target.labels()...).Set(1)
	if !known {
		klog.FromContext(ctx).Info("Cache is stale", "reason", why)
	}
	m.deps.Election.StepDown(why, func() bool { return len(m.Stale()) == 0 })
}

// setCurrent takes a suspicion back, if there was one.
func (m *Monitor) setCurrent(ctx context.Context, what suspicion) {
	m.lock.Lock()
	_, known := m.stale[what]
	delete(m.stale, what)
	_, other := m.stale[suspicion{what.target, !what.canary}]
	m.lock.Unlock()
	if !known {
		return
	}
	if !other {
		m.deps.Metrics.stale.WithLabelValues(what.target.labels()...).Set(0)
	}
	klog.FromContext(ctx).Info("Cache is current again", "watch", what.target.String())
}
