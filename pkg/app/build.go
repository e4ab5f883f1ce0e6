package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/freshness"
	"minikcm/pkg/kubeclient"
	"minikcm/pkg/leadership"
)

// builder makes the parts of a manager from its configuration. Every client has its own path to the API server: informers one that
// is watched for silence, controllers one that is fenced, the elector one that nothing else can hold up.
type builder struct {
	cfg       Config
	clock     clock.WithTicker
	registry  *prometheus.Registry
	metrics   *leadership.Metrics
	watches   *freshness.Metrics
	fence     *leadership.Fence
	transport *freshness.Transport
	caches    *caches.Caches
	events    *events
}

func newBuilder(cfg Config, clk clock.WithTicker) (*builder, error) {
	b := &builder{cfg: cfg, clock: clk, registry: prometheus.NewRegistry()}
	b.metrics = leadership.NewMetrics(b.registry)
	b.registry.MustRegister(kubeclient.CertificateMetric(cfg.REST.TLSClientConfig))
	b.fence = leadership.NewFence(clk, b.metrics)
	b.watches = freshness.NewMetrics(b.registry)
	b.transport = freshness.NewTransport(clk, b.watches)

	if err := b.buildCaches(); err != nil {
		return nil, err
	}
	var err error
	b.events, err = newEvents(kubeclient.WithAgent(cfg.REST, "events"), b.registry)
	return b, err
}

// buildCaches makes the caches and their two clients. Leases have a client that coalesces reads: with many nodes renewals arrive by the hundred, and
// nothing waits for a single one of them as a ReplicaSet waits for its pods. The price is that the events of our own Lease, which come on the same
// stream, are seen up to 75 ms later.
func (b *builder) buildCaches() error {
	informers := kubeclient.WithAgent(b.cfg.REST, "shared-informers")
	informers.QPS = -1
	cfg, client, err := b.transport.Client(informers, false)
	if err != nil {
		return err
	}
	most, err := kubernetes.NewForConfigAndClient(cfg, client)
	if err != nil {
		return fmt.Errorf("build the informers' client: %w", err)
	}
	leaseCfg, leaseClient, err := b.transport.Client(informers, true)
	if err != nil {
		return err
	}
	leases, err := kubernetes.NewForConfigAndClient(leaseCfg, leaseClient)
	if err != nil {
		return fmt.Errorf("build the client of the Lease informer: %w", err)
	}
	name := ""
	if b.cfg.OwnProcess {
		name = Name
	}
	b.caches = caches.New(most, caches.Config{
		Name: name, FreeMemory: b.cfg.OwnProcess, Resync: wait.Jitter(max(0, b.cfg.MinResync), 1),
		LeaseNamespaces: leaseNamespaces(b.cfg), LeaseOwners: followsOwners(b.cfg),
		LeaseClient: leases, Transport: b.transport, Clock: b.clock,
		Direct: func() (*rest.Config, *http.Client, error) {
			feeds := kubeclient.WithAgent(b.cfg.REST, "feeds")
			feeds.QPS = -1
			return b.transport.FeedClient(feeds)
		},
		REST: func(content *rest.ContentConfig) (rest.Interface, error) {
			if content.ContentType == "" {
				content.ContentType, content.AcceptContentTypes = cfg.ContentType, cfg.AcceptContentTypes
			}
			cfg := rest.CopyConfig(cfg)
			cfg.APIPath, cfg.ContentConfig = "/apis", *content
			if content.GroupVersion.Group == "" {
				cfg.APIPath = "/api"
			}
			return rest.RESTClientForConfigAndClient(cfg, client)
		},
	})
	return nil
}

// followsOwners reports whether some controller wants to know the owners of all objects.
func followsOwners(cfg Config) bool {
	return slices.ContainsFunc(cfg.Controllers, func(c controller.Registration) bool { return c.FollowsOwners })
}

// leaseNamespaces are those of the Leases somebody reads: those of the controllers, and our own.
func leaseNamespaces(cfg Config) []string {
	var namespaces []string
	if cfg.Election.Enabled {
		namespaces = append(namespaces, cfg.Election.Namespace)
	}
	for _, c := range cfg.Controllers {
		for _, namespace := range c.LeaseNamespaces {
			if !slices.Contains(namespaces, namespace) {
				namespaces = append(namespaces, namespace)
			}
		}
	}
	return namespaces
}

func (b *builder) elector(flush func(context.Context)) (*leadership.Elector, error) {
	deps := leadership.Deps{Fence: b.fence, Metrics: b.metrics, Clock: b.clock, Flush: flush}
	if b.cfg.Election.Enabled {
		var err error
		if deps.Leases, err = leadership.NewLeaseClient(b.cfg.REST, b.cfg.Election.RenewDeadline); err != nil {
			return nil, err
		}
		deps.Events = b.events.recorder(Name)
	}
	return leadership.New(b.cfg.Election, deps)
}

// fenced returns a controller's client.
func (b *builder) fenced(name string) (kubernetes.Interface, *rest.Config, error) {
	guard := func(cfg *rest.Config) {
		cfg.Wrap(b.fence.Wrap)
		cfg.Dial = b.fence.Dial
	}
	cfg := kubeclient.WithAgent(b.cfg.REST, name)
	guard(cfg)
	if b.cfg.ServiceAccounts {
		var err error
		if cfg, err = kubeclient.AsServiceAccount(b.cfg.REST, name, guard); err != nil {
			return nil, nil, err
		}
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("build the client of %s: %w", name, err)
	}
	return client, cfg, nil
}

// controllers builds the enabled controllers, in start order. They register their handlers, so this comes before the caches start.
func (b *builder) controllers() ([]builtController, error) {
	base := controller.Base{
		Caches: b.caches, Recorder: b.events.recorder, Clock: b.clock, Metrics: b.registry,
		Drain: drain(b.cfg.Election.ShutdownTimeout), Enabled: b.cfg.Enabled,
	}
	if b.cfg.OwnProcess {
		base.Metrics = controller.QueueMetrics{Registerer: b.registry}
	}
	if b.cfg.Election.Enabled {
		leases, err := b.caches.Leases()
		if err != nil {
			return nil, err
		}
		base.APIServers = apiServers(leases)
	}
	var built []builtController
	for _, r := range b.cfg.Controllers {
		var err error
		if base.Client, base.REST, err = b.fenced(r.Agent); err != nil {
			return nil, err
		}
		c, err := r.New(base)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", r.Name, err)
		}
		built = append(built, builtController{c, r.Name})
	}
	return built, nil
}

// drain returns how long a loop lets its syncs run on after the end of a term: a second longer than the elector waits for them. So it is the elector
// that cuts a write which is not answered, and it knows then that the API server may still carry the write out. If the loop cancelled it first, the
// controllers would seem to have drained in time, and the lease to be free to be released. 0 means no limit for both.
func drain(shutdown time.Duration) time.Duration {
	if shutdown == 0 {
		return 0
	}
	return shutdown + time.Second
}

// freshness watches over the caches that were asked for so far; nil if that is switched off.
func (b *builder) freshness(elector *leadership.Elector) (*freshness.Monitor, error) {
	if !b.cfg.WatchLiveness {
		return nil, nil
	}
	client, err := metadata.NewForConfig(kubeclient.WithAgent(b.cfg.REST, "watch-liveness"))
	if err != nil {
		return nil, fmt.Errorf("build the client of the watch monitor: %w", err)
	}
	deps := freshness.Deps{Metadata: client, Transport: b.transport, Election: elector, Metrics: b.watches, Clock: b.clock}
	if e := b.cfg.Election; e.Enabled {
		deps.LeaseNamespace, deps.RetryPeriod = e.Namespace, e.RetryPeriod
	}
	return freshness.New(freshness.Config{}, deps, b.caches.Types()), nil
}

// apiServerLease begins the names of the Leases with which API servers show their identity. Their label
// apiserver.kubernetes.io/identity is not in the cache.
const apiServerLease = "apiserver-" // k8s.io/apiserver v0.37, server.NewConfig

// apiServers returns a function that counts the API servers by their identity Leases. That is a hint: a server that has
// gone is counted for up to an hour, and servers on one host name share a Lease.
func apiServers(leases *caches.Leases) func() int {
	return func() int {
		n := 0
		for _, name := range leases.Names() {
			if name.Namespace == metav1.NamespaceSystem && strings.HasPrefix(name.Name, apiServerLease) {
				n++
			}
		}
		return n
	}
}

// builtController is a controller that was built.
type builtController struct {
	controller.Controller
	name string
}
