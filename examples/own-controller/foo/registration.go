package foo

import (
	"fmt"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// Name is the controller's name in --controllers and logs, the source of its events and the end of its user agent.
const Name = "foo-controller"

// Config holds the values of the flags.
type Config struct {
	Workers int `json:"ConcurrentFooSyncs"` // Foos worked on at once, at least 1
}

// DefaultConfig returns the defaults.
func DefaultConfig() *Config { return &Config{Workers: 2} }

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Workers, "concurrent-foo-syncs", c.Workers, "Foos worked on at the same time.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Workers("concurrent-foo-syncs", c.Workers)
	return p
}

// Registration returns the controller for the manager.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "foo", Agent: Name,
		Config: cfg, Section: "FooController",
		WatchPermissions: []controller.Access{{Group: Foos.Group, Resource: "foos"}, {Group: "apps", Resource: "deployments"}},
		Permissions: []controller.Access{
			{Group: Foos.Group, Resource: "foos/status", Verbs: []string{"patch"}, Impact: "cannot report the available replicas"},
			{Group: Foos.Group, Resource: "foos/finalizers", Verbs: []string{"update"}, Impact: "cannot create Deployments that keep their owner"},
			{Group: "apps", Resource: "deployments", Verbs: []string{"create", "update"}, Impact: "cannot keep Deployments"},
		},
		New: func(b controller.Base) (controller.Controller, error) { return newController(*cfg, b) },
	}
}

// newController registers handlers and sends no request.
func newController(cfg Config, b controller.Base) (*Controller, error) {
	foos, err := caches.Watch[*Foo](b.Caches, Foos, caches.Options{Scheme: scheme()})
	if err != nil {
		return nil, err
	}
	deployments, err := caches.Watch[*appsv1.Deployment](b.Caches, appsv1.SchemeGroupVersion.WithResource("deployments"), caches.Options{})
	if err != nil {
		return nil, err
	}
	client, err := statusClient(b.REST)
	if err != nil {
		return nil, err
	}
	c := &Controller{foos: foos, deployments: deployments, client: b.Client, status: client, recorder: b.Recorder(Name)}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: "foo", Workers: cfg.Workers, Drain: b.Drain, Clock: b.Clock,
	}, b.Metrics, c.reconcile)
	return c, c.addHandlers()
}

// statusClient writes Foos. It uses the fenced configuration, like every client that writes.
func statusClient(fenced *rest.Config) (rest.Interface, error) {
	cfg := rest.CopyConfig(fenced)
	gv := Foos.GroupVersion()
	cfg.APIPath, cfg.GroupVersion = "/apis", &gv
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json" // custom resources have no protobuf
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme()).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the client of Foos: %w", err)
	}
	return client, nil
}
