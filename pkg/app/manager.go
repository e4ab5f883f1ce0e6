package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/freshness"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Manager is one run of the program, built and not yet started.
type Manager struct {
	cfg         Config
	clock       clock.WithTicker
	server      *serving.Server
	caches      *caches.Caches
	events      *events
	elector     *leadership.Elector
	freshness   *freshness.Monitor // nil if switched off
	controllers []builtController

	work    func()        // closes working; may be called again
	working chan struct{} // closed when the controllers work for the first time
}

// Run is [New] and [Manager.Run].
func Run(ctx context.Context, cfg Config) error {
	m, err := New(cfg)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// New builds every part, controllers last, and starts none; it binds the serving port, and asks nothing over the network. The error says what
// is wrong with cfg. Several managers may run in one process.
func New(cfg Config) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, clock: clock.RealClock{}, working: make(chan struct{})}
	m.work = sync.OnceFunc(func() { close(m.working) })
	b, err := newBuilder(cfg, m.clock)
	if err != nil {
		return nil, err
	}
	m.caches, m.events = b.caches, b.events
	if m.elector, err = b.elector(m.events.flush); err != nil {
		return nil, err
	}
	if m.controllers, err = b.controllers(); err != nil {
		return nil, err
	}
	if err := m.observeLease(); err != nil {
		return nil, err
	}
	if m.freshness, err = b.freshness(m.elector); err != nil {
		return nil, err
	}
	configz := map[string]any{configzName: configzDocument(cfg)}
	if m.server, err = serving.New(cfg.Serving, serving.Deps{Name: Name, Metrics: b.registry, Configz: configz, Clock: m.clock}); err != nil {
		return nil, err
	}
	m.addChecks()
	return m, nil
}

// observeLease shows the elector what the shared informer sees of our Lease.
func (m *Manager) observeLease() error {
	if !m.cfg.Election.Enabled {
		return nil
	}
	leases, err := m.caches.Leases()
	if err != nil {
		return err
	}
	ours := cache.NewObjectName(m.cfg.Election.Namespace, m.cfg.Election.Name)
	observe := func(lease *coordinationv1.Lease) {
		if cache.MetaObjectToName(lease) == ours {
			m.elector.Observe(lease)
		}
	}
	return leases.Handle(caches.Handler[*coordinationv1.Lease]{
		Add:    observe,
		Update: func(_, lease *coordinationv1.Lease) { observe(lease) },
		Delete: func(lease *coordinationv1.Lease) {
			if cache.MetaObjectToName(lease) == ours {
				m.elector.Observe(nil)
			}
		},
	})
}

// addChecks tells the server what to look at. Liveness never depends on the API server, or an outage would restart every manager.
func (m *Manager) addChecks() {
	m.server.AddLive(m.elector.Name(), func() error { return m.elector.Check(nil) })
	for _, c := range m.controllers {
		m.server.AddLive(c.name, c.Healthy)
	}
	m.server.AddReady("caches", func() error {
		if missing := m.caches.Unsynced(); len(missing) > 0 {
			return fmt.Errorf("not synced: %v", missing)
		}
		return nil
	})
	if m.freshness != nil {
		m.server.AddReady(m.freshness.Name(), func() error { return m.freshness.Check(nil) })
	}
}

// Unsynced names the types whose first list has not come yet.
func (m *Manager) Unsynced() []string { return m.caches.Unsynced() }

// Started is closed when the caches are filled and the controllers work, for the first time.
func (m *Manager) Started() <-chan struct{} { return m.working }

// Run serves, keeps caches, competes for the lease and runs the controllers while it holds it. It blocks until ctx ends, for whatever cause, and
// then returns nil if everything was stopped in order. It is called once. Every goroutine has ended when it returns, but for informers that
// client-go lets sleep when the API server refused them or is away: they end within a minute and ask nothing more. With Config.ServiceAccounts a token may
// still be fetched, for half a minute at most.
func (m *Manager) Run(ctx context.Context) error {
	m.server.AddReady("shutdown", func() error { return stopping(ctx) })
	// Whatever serves others is up before them, and down after them.
	err := runStages(ctx, m.serve, m.sendEvents, m.preflight, m.keepCaches, m.watchOver, m.compete)
	klog.FromContext(ctx).Info("Stopped", "reason", context.Cause(ctx))
	return err
}

func (m *Manager) serve(ctx context.Context, up func()) error {
	up()
	if err := m.server.Run(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (m *Manager) sendEvents(ctx context.Context, up func()) error {
	m.events.start(ctx)
	defer m.events.stop()
	up()
	<-ctx.Done()
	return nil
}

func (m *Manager) preflight(ctx context.Context, up func()) error {
	if err := preflight(ctx, m.cfg); err != nil {
		return err
	}
	up()
	<-ctx.Done()
	return nil
}

// keepCaches starts every informer. It is up when the caches are filled.
func (m *Manager) keepCaches(ctx context.Context, up func()) error {
	m.caches.Start(ctx)
	err := m.caches.WaitForSync(ctx)
	if err == nil {
		up()
	}
	<-ctx.Done()
	if !within(m.clock, cachesPatience, m.caches.Shutdown) {
		klog.FromContext(ctx).Info("Stopped without waiting for informers that sleep", "waited", cachesPatience)
	}
	return err
}

// cachesPatience is how long informers may take to end. One whose streaming list is refused by an overloaded API server may sleep for up to
// a minute, and client-go v0.37 does not wake it; nobody reads what it fills any more, and it asks nothing when it wakes up.
const cachesPatience = time.Second

// watchOver looks after the watches of the caches, once these are filled.
func (m *Manager) watchOver(ctx context.Context, up func()) error {
	up()
	if m.freshness == nil {
		<-ctx.Done()
		return nil
	}
	return m.freshness.Run(ctx)
}

func (m *Manager) compete(ctx context.Context, _ func()) error { return m.elector.Run(ctx, m.lead) }

// stopping is the readiness of a process that was told to stop: its Service should send nobody any more, while running syncs end.
func stopping(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("the process is stopping")
	}
	return nil
}

// within calls f and reports whether it returned in time. If not, it goes on.
func within(clk clock.Clock, patience time.Duration, f func()) bool {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		f()
	}()
	timer := clk.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-returned:
		return true
	case <-timer.C():
		return false
	}
}

// lead is one term: it runs every controller until the term ends or one of them gives up.
func (m *Manager) lead(ctx context.Context, term leadership.Term) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	var controllers sync.WaitGroup
	for _, c := range m.controllers {
		controllers.Go(func() {
			if !m.pause(ctx) {
				return
			}
			defer m.showRunning(c.name)()
			logger := klog.FromContext(ctx)
			logger.V(2).Info("Controller started", "controller", c.name, "term", term.Number)
			if err := c.Run(ctx); err != nil {
				abort(fmt.Errorf("%s: %w", c.name, err))
			}
		})
	}
	m.work()
	<-ctx.Done()
	controllers.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// showRunning shows a controller in the metric that a process has of its controllers, until the function it returns is called.
func (m *Manager) showRunning(name string) (end func()) {
	if !m.cfg.OwnProcess {
		return func() {}
	}
	controllersmetrics.Register() // once, however often it is called
	running := controllersmetrics.NewControllerManagerMetrics(Name)
	running.ControllerStarted(name)
	return func() { running.ControllerStopped(name) }
}

// pause waits the start interval, spread, and reports whether the term is still on.
func (m *Manager) pause(ctx context.Context) bool {
	if m.cfg.StartInterval <= 0 {
		return ctx.Err() == nil
	}
	return timing.Sleep(ctx, m.clock, wait.Jitter(m.cfg.StartInterval, 1))
}
