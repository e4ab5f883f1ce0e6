package freshness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// WatchedCache is a cache that a Monitor checks.
type WatchedCache struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty for all namespaces
	// Version returns the resourceVersion that the store has reached. It is empty before the first list.
	Version func() string
	// Expected returns the highest version that some object of the type is known to have had. A working
	// watch delivers that version at once, while the version of a list may never come. It is empty if no
	// version is known.
	Expected func() string
	// Objects returns the contents of the store as a new map, which may be large. Confirm calls Objects
	// every 10 ms while the cache is behind.
	Objects func() ObjectVersions
	// MaxSilence is the longest time for which a silent watch may miss an expected version. It is for a
	// type that is written every few seconds, such as the Lease of a leader. Zero for other types.
	MaxSilence time.Duration
}

func (w WatchedCache) target() watchTarget { return watchTarget{w.Resource, w.Namespace} }

// Deps holds the dependencies of Monitor.
type Deps struct {
	Metadata  metadata.Interface // not on the connections of Transport: its lists must succeed when watches do not
	Transport *Transport
	Metrics   *Metrics
	Clock     clock.Clock
	// StepDown ends the term of a leader and keeps the process out of the election until caughtUp returns true
	// or a cool-down has passed.
	StepDown func(reason string, caughtUp func() bool)
}

// ErrSetBack is in the error of Run when a consistent list was older than a version that was known before,
// as after a restore of etcd from a backup. Watches then wait for versions that may be days away, caches
// hold objects that no longer exist, and controllers remember writes that never happened.
var ErrSetBack = errors.New("resourceVersion went backwards (etcd restored?), caches have to be filled again")

// Monitor finds caches that do not follow the API server, for any reason: connections without data,
// connections that cannot be made, streams that end before any data, an API server whose watches have
// stopped. In all cases lists have versions that the cache does not reach. The watch of such a type is
// reopened. A cache that still differs from a list is stale, and the elector steps down until the cache is
// current.
//
// Lag alone is never staleness, nor is a cache that is being filled. A type becomes stale only after a
// successful or forbidden list. The list shows that another process, or this process after a restart, could do
// better.
type Monitor struct {
	deps    Deps
	watched []WatchedCache

	lock  sync.Mutex
	stale map[watchTarget]string // reasons
}

// New returns a monitor of the given informers. It does nothing before Run.
func New(deps Deps, watched []WatchedCache) *Monitor {
	return &Monitor{deps: deps, watched: watched, stale: map[watchTarget]string{}}
}

// Run checks all types until ctx ends, and then returns nil. Call it when the caches have synced. After an
// error with ErrSetBack only a new process helps.
func (m *Monitor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range m.watched {
		// Create the series that otherwise begin with an event.
		m.deps.Metrics.reopened.WithLabelValues(w.target().labels()...)
		m.deps.Metrics.stale.WithLabelValues(w.target().labels()...)
		t := &typeMonitor{Monitor: m, WatchedCache: w, state: current, version: w.Version(), changedAt: m.deps.Clock.Now()}
		group.Go(func() error { return t.run(ctx) })
	}
	return group.Wait()
}

// Check returns an error while a type is stale. It belongs to readiness, not to liveness.
func (m *Monitor) Check() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.stale) > 0 {
		return fmt.Errorf("stale caches: %s", strings.Join(slices.Sorted(maps.Values(m.stale)), "; "))
	}
	return nil
}

// Metrics are the metrics of one Monitor. Their names begin with leadership_watch_, because
// they show why a leader stepped down.
type Metrics struct {
	reopened *prometheus.CounterVec // by resource and namespace, like all
	idle     *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto, labels := promauto.With(reg), []string{"resource", "namespace"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "leadership_watch_" + name, Help: help}, labels)
	}
	return &Metrics{
		reopened: auto.NewCounterVec(prometheus.CounterOpts{Name: "leadership_watch_reopenings_total",
			Help: "Watches that the monitor reopened because the cache did not reach a known version."}, labels),
		idle: gauge("idle_seconds", "Time since the last byte of any watch or list of a resource."),
		lag: gauge("lag_seconds", "Time since the cache of a resource first missed the version of a list. "+
			"Up to 60 s are normal. "+
			"While lists fail, time since the last list for which the watch was silent."),
		stale: gauge("stale", "1 while the cache of a resource is stale."),
	}
}
