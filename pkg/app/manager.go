package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/freshness"
	"minikcm/pkg/kubeclient"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// shutdownTimeoutOfCaches is the time that informers have to end. client-go v0.37 does not wake an informer
// that sleeps, for up to a minute, after an overloaded API server rejected its streaming list. Such an
// informer sends no further request and no reader is left.
const shutdownTimeoutOfCaches = time.Second

// flushTimeout is the time that events have after the end of the last term and the release of the lease.
const flushTimeout = time.Second

// freeMemoryAfter is the time from the start of a term until memory is returned to the operating system. The
// first syncs of the controllers allocate several times the memory of the caches.
const freeMemoryAfter = 10 * time.Second

// Manager is one run of the program.
type Manager struct {
	cfg         Config
	clock       clock.WithTicker
	server      *serving.Server
	caches      *caches.Caches
	events      *events
	elector     *leadership.Elector
	freshness   *freshness.Monitor // nil if Config.CheckFreshness is off
	controllers []namedController

	markStarted func() // closes started; may be called again
	started     chan struct{}
	stopping    atomic.Bool
	ran         atomic.Bool
}

type namedController struct {
	controller.Controller
	name string
}

// Run is [New] and [Manager.Run].
func Run(ctx context.Context, cfg Config) error {
	m, err := New(cfg)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// New builds every part and starts none. It binds the serving port and sends no request. The error names the
// problems of cfg. Several managers may run in one process. Informers, feeds, the elector and each
// controller have separate connections to the API server. Connections of informers are checked for silence,
// connections of controllers pass the fence, and no other request delays the elector.
func New(cfg Config) (*Manager, error) {
	// 1. Check the configuration.
	err := cfg.validateConfig()
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, clock: clock.RealClock{}, started: make(chan struct{})}
	m.markStarted = sync.OnceFunc(func() { close(m.started) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(kubeclient.CertificateMetric(cfg.REST.TLSClientConfig))

	// 2. Build the caches and the events, which all controllers share.
	watchMetrics := freshness.NewMetrics(registry)
	transport := freshness.NewTransport(m.clock)
	if m.caches, err = newCaches(cfg, transport); err != nil {
		return nil, err
	}
	if m.events, err = newEvents(kubeclient.WithAgent(cfg.REST, "events"), registry); err != nil {
		return nil, err
	}

	// 3. Build the elector, and show it the Lease as the shared informer sees it.
	termMetrics := leadership.NewMetrics(registry)
	fence := leadership.NewFence(m.clock, termMetrics)
	electorDeps := leadership.Deps{Fence: fence, Metrics: termMetrics}
	if cfg.Election.Enabled {
		if electorDeps.Leases, err = leadership.NewLeaseClient(cfg.REST, cfg.Election.RenewDeadline); err != nil {
			return nil, err
		}
		electorDeps.Events = m.events.newRecorder(Name)
		if electorDeps.Expect, err = m.observeLease(); err != nil {
			return nil, err
		}
	}
	if m.elector, err = leadership.New(cfg.Election, electorDeps); err != nil {
		return nil, err
	}

	// 4. Build the controllers, which register their handlers before the caches start.
	base := controller.Base{
		Caches: m.caches, Recorder: m.events.newRecorder, Clock: m.clock, Metrics: registry,
		Drain: drainTime(cfg.Election.ShutdownTimeout), Enabled: cfg.Enabled,
	}
	if cfg.OwnProcess {
		base.Metrics = controller.QueueMetrics{Registerer: registry}
	}
	for _, r := range cfg.Controllers {
		if base.Client, base.REST, err = fencedClient(cfg, fence, r.Agent); err != nil {
			return nil, err
		}
		c, err := r.New(base)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", r.Name, err)
		}
		m.controllers = append(m.controllers, namedController{c, r.Name})
	}

	// 5. Build the monitor of all caches that the steps above use.
	if cfg.CheckFreshness {
		client, err := metadata.NewForConfig(kubeclient.WithAgent(cfg.REST, "freshness"))
		if err != nil {
			return nil, fmt.Errorf("build the client of the freshness monitor: %w", err)
		}
		types := m.caches.Types()
		for i := range types {
			if cfg.Election.Enabled && types[i].Resource.Resource == "leases" { // written every RetryPeriod
				types[i].MaxSilence = 3 * cfg.Election.RetryPeriod
			}
		}
		deps := freshness.Deps{Metadata: client, Transport: transport, StepDown: m.elector.StepDown, Metrics: watchMetrics, Clock: m.clock}
		m.freshness = freshness.New(deps, types)
	}

	// 6. Bind the serving port.
	m.server, err = serving.New(cfg.Serving, serving.Deps{
		Name: Name, Metrics: registry, Configz: map[string]any{configzName: configzDocument(cfg)}, Clock: m.clock,
		Live: m.liveChecks(), Ready: m.readyChecks(),
	})
	return m, err
}

// newCaches builds the caches and their two clients. Leases have a client that coalesces reads: with many
// nodes hundreds of renewals arrive at once, and no controller waits for a single renewal. Events of the Lease
// of this process use the same stream and are seen up to 150 ms later.
func newCaches(cfg Config, transport *freshness.Transport) (*caches.Caches, error) {
	informers := kubeclient.WithAgent(cfg.REST, "shared-informers")
	informers.QPS = -1
	rc, httpClient, err := transport.Client(informers, false)
	if err != nil {
		return nil, err
	}
	leaseConfig, leaseHTTPClient, err := transport.Client(informers, true)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(rc, httpClient)
	leaseClient, leaseErr := kubernetes.NewForConfigAndClient(leaseConfig, leaseHTTPClient)
	if err := errors.Join(err, leaseErr); err != nil {
		return nil, fmt.Errorf("build the clients of the informers: %w", err)
	}
	name := ""
	if cfg.OwnProcess {
		name = Name
	}
	fields := caches.Fields(0)
	for _, c := range cfg.Controllers {
		fields |= c.CachedFields
	}
	return caches.New(client, caches.Config{
		Name: name, FreeMemory: cfg.OwnProcess, Resync: wait.Jitter(max(0, cfg.MinResync), 1),
		LeaseNamespaces: leaseNamespaces(cfg), Fields: fields,
		LeaseOwners: slices.ContainsFunc(cfg.Controllers, func(c controller.Registration) bool { return c.FollowsOwners }),
		LeaseClient: leaseClient,
		Direct: func() (*rest.Config, *http.Client, error) {
			feeds := kubeclient.WithAgent(cfg.REST, "feeds")
			feeds.QPS = -1
			return transport.Client(feeds, false)
		},
		REST: func(content *rest.ContentConfig) (rest.Interface, error) {
			if content.ContentType == "" {
				content.ContentType, content.AcceptContentTypes = rc.ContentType, rc.AcceptContentTypes
			}
			typed := rest.CopyConfig(rc)
			typed.APIPath, typed.ContentConfig = "/apis", *content
			if content.GroupVersion.Group == "" {
				typed.APIPath = "/api"
			}
			return rest.RESTClientForConfigAndClient(typed, httpClient)
		},
	}), nil
}

// leaseNamespaces returns the namespaces of the Leases that the controllers read, and of the Lease of this process.
func leaseNamespaces(cfg Config) (namespaces []string) {
	if cfg.Election.Enabled {
		namespaces = append(namespaces, cfg.Election.Namespace)
	}
	for _, c := range cfg.Controllers {
		namespaces = append(namespaces, c.LeaseNamespaces...)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// fencedClient returns the client of a controller and its configuration.
func fencedClient(cfg Config, fence *leadership.Fence, agent string) (kubernetes.Interface, *rest.Config, error) {
	guard := func(rc *rest.Config) {
		rc.Wrap(fence.Wrap)
		rc.Dial = fence.Dial
	}
	rc := kubeclient.WithAgent(cfg.REST, agent)
	guard(rc)
	if cfg.ServiceAccounts {
		var err error
		if rc, err = kubeclient.AsServiceAccount(cfg.REST, agent, guard); err != nil {
			return nil, nil, err
		}
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("build the client of %s: %w", agent, err)
	}
	return client, rc, nil
}

// drainTime returns the time that the syncs of a loop have after the end of a term: a second more than the elector
// waits for the controllers. So the elector cancels a write without a response, and the process ends with an
// error. If the loop cancelled the write first, the controllers would seem to have drained in time. 0 means no limit.
func drainTime(shutdownTimeout time.Duration) time.Duration {
	if shutdownTimeout == 0 {
		return 0
	}
	return shutdownTimeout + time.Second
}

// observeLease passes the events of the Lease to the elector. expect records a version of the Lease that a request has
// shown.
func (m *Manager) observeLease() (expect func(version string), err error) {
	leases, err := m.caches.Leases()
	if err != nil {
		return nil, err
	}
	return leases.Expect, leases.Handle(caches.Handler[*coordinationv1.Lease]{
		Add:    func(lease *coordinationv1.Lease) { m.elector.Observe(lease) },
		Update: func(_, lease *coordinationv1.Lease) { m.elector.Observe(lease) },
		Delete: func(lease *coordinationv1.Lease) {
			if lease.Namespace == m.cfg.Election.Namespace && lease.Name == m.cfg.Election.Name {
				m.elector.Observe(nil)
			}
		},
	})
}

// liveChecks returns the checks of /livez. None depends on the API server, or an outage would restart every manager.
func (m *Manager) liveChecks() []serving.Check {
	var checks []serving.Check
	if m.cfg.Election.Enabled {
		checks = append(checks, serving.Check{Name: "leaderElection", Run: m.elector.Healthy}) // upstream's name
	}
	for _, c := range m.controllers {
		checks = append(checks, serving.Check{Name: c.name, Run: c.Healthy})
	}
	return checks
}

// readyChecks returns the checks of /readyz. A stopping process is not ready: its Service sends no further
// clients while running syncs end.
func (m *Manager) readyChecks() []serving.Check {
	checks := []serving.Check{{Name: "caches", Run: func() error {
		if missing := m.caches.Unsynced(); len(missing) > 0 {
			return fmt.Errorf("not synced: %v", missing)
		}
		return nil
	}}}
	if m.freshness != nil {
		checks = append(checks, serving.Check{Name: "watches", Run: m.freshness.Check})
	}
	return append(checks, serving.Check{Name: "shutdown", Run: func() error {
		if m.stopping.Load() {
			return errors.New("the process is stopping")
		}
		return nil
	}})
}

// Unsynced returns the names of the types whose first list is not complete.
func (m *Manager) Unsynced() []string { return m.caches.Unsynced() }

// Started returns a channel that is closed when the caches are filled and the controllers run for the first time.
func (m *Manager) Started() <-chan struct{} { return m.started }

// Run serves, fills caches, competes for the lease and runs the controllers while holding the lease. It blocks
// until ctx ends, and returns nil if every part was stopped in order. Its error may wrap
// [leadership.ErrShutdownTimeout] or [freshness.ErrSetBack]. A second call returns an error. Every
// goroutine has ended when Run returns, with these exceptions: informers that client-go lets sleep after the API server
// rejected their lists end within a minute and send no request, and with Config.ServiceAccounts the request
// for a token may take half a minute. Informers of the cluster's authorities, idle connections and client-go's
// certificate reloading end later.
func (m *Manager) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return errors.New("Run was called before: build another Manager")
	}
	defer context.AfterFunc(ctx, func() { m.stopping.Store(true) })()
	err := runStages(ctx, m.serveHTTPS, m.sendEvents, m.preflight, m.keepCaches, m.checkCaches, m.competeForLease)
	if ctx.Err() != nil { // otherwise the caller reports the error
		klog.FromContext(ctx).Info("Stopped", "reason", context.Cause(ctx))
	}
	return err
}

func (m *Manager) serveHTTPS(ctx context.Context, up func()) error {
	up()
	if err := m.server.Run(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (m *Manager) sendEvents(ctx context.Context, up func()) error {
	m.events.startSending(ctx)
	defer m.events.stopSending()
	up()
	<-ctx.Done()
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	m.events.flush(flushing)
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

// keepCaches starts every informer. The stage is up when the caches are filled.
func (m *Manager) keepCaches(ctx context.Context, up func()) error {
	m.caches.Start(ctx)
	err := m.caches.WaitForSync(ctx)
	if err == nil {
		up()
	}
	<-ctx.Done()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.caches.Shutdown()
	}()
	timer := m.clock.NewTimer(shutdownTimeoutOfCaches)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
		klog.FromContext(ctx).Info("Stopped without waiting for sleeping informers", "duration", shutdownTimeoutOfCaches)
	}
	return err
}

// checkCaches monitors the watches of filled caches.
func (m *Manager) checkCaches(ctx context.Context, up func()) error {
	up()
	if m.freshness == nil {
		<-ctx.Done()
		return nil
	}
	return m.freshness.Run(ctx)
}

func (m *Manager) competeForLease(ctx context.Context, _ func()) error {
	return m.elector.Run(ctx, m.runControllers)
}

// runControllers runs every controller until the term ends or a controller fails.
func (m *Manager) runControllers(ctx context.Context, term uint64) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	var controllers sync.WaitGroup
	for _, c := range m.controllers {
		controllers.Go(func() {
			if m.cfg.StartInterval > 0 && !timing.Sleep(ctx, m.clock, wait.Jitter(m.cfg.StartInterval, 1)) {
				return
			}
			if m.cfg.OwnProcess {
				controllersmetrics.Register() // has an effect once
				running := controllersmetrics.NewControllerManagerMetrics(Name)
				running.ControllerStarted(c.name)
				defer running.ControllerStopped(c.name)
			}
			klog.FromContext(ctx).V(2).Info("Controller started", "controller", c.name, "term", term)
			if err := c.Run(ctx); err != nil {
				abort(fmt.Errorf("%s: %w", c.name, err))
			}
		})
	}
	if m.cfg.OwnProcess {
		controllers.Go(func() {
			if timing.Sleep(ctx, m.clock, freeMemoryAfter) {
				debug.FreeOSMemory()
			}
		})
	}
	m.markStarted()
	<-ctx.Done()
	controllers.Wait()
	if cause := context.Cause(ctx); cause != context.Canceled { // errors of controllers may wrap context.Canceled
		return cause
	}
	return nil
}
