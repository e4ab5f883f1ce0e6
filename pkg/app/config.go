package app

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"

	"minikcm/pkg/controller"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Name is the name of the program on the command line and in user agents, and the default name of the Lease.
const Name = "controller-manager"

// Config is the configuration of a manager. [Options.Complete] and [DefaultConfig] return a Config. A manager does
// not change the Config.
type Config struct {
	// Controllers are the enabled controllers, in start order. Without controllers the process only serves and
	// takes the Lease.
	Controllers []controller.Registration
	// Known are all controllers, with those that are not enabled. /configz shows their configurations.
	Known []controller.Registration
	// Permissions are those of the surrounding program. The manager does not start without them.
	Permissions []controller.Access
	// Enabled reports whether a feature gate of a controller is on.
	Enabled func(featuregate.Feature) bool

	// REST reaches the API server with the identity of this process. Clients append their purpose to its user
	// agent. REST has no Dial, and no Transport with Election or CheckFreshness: the manager closes connections
	// itself then.
	REST *rest.Config

	// StartTimeout is the time that the manager waits at its start for an API server that is missing or not
	// ready. 0 waits forever. A TLS handshake may take 10 s and a request 20 s even if StartTimeout is
	// shorter.
	StartTimeout time.Duration

	// OwnProcess states that the process has no other purpose than this manager. The manager then uses the
	// library metrics that exist once per process, and returns memory to the operating system after the caches
	// are filled. Errors advise about flags of the command. Only package command sets OwnProcess.
	OwnProcess bool

	// ServiceAccounts lets each controller work as the service account of its Agent in kube-system.
	ServiceAccounts bool

	// MinResync is the lower bound of the informers' resync period, which is a random time in [MinResync, 2
	// MinResync). 0 disables resyncs.
	MinResync time.Duration
	// StartInterval spreads the start of the controllers at the beginning of a term. Each controller waits a
	// random time in [StartInterval, 2 StartInterval).
	StartInterval time.Duration

	// Election configures the Lease.
	Election leadership.Config
	// CheckFreshness reopens watch streams that deliver nothing. A leader whose caches stay behind steps down.
	CheckFreshness bool

	// Serving configures the HTTPS endpoint.
	Serving serving.Config
}

// DefaultConfig returns the configuration of a manager inside another program: the defaults of the command for
// these controllers, with the API server and the credentials of cfg. cfg is copied. The rate limits, timeout,
// content type, compression, user agent and warning handler of the copy are replaced. Most programs change
// Election and Serving of the result. Controllers that their own Config disables do not run. It returns an error
// if cfg is nil, or if the host name, part of the identity, cannot be read. [New] rejects a cfg with a Dial, and a
// Transport with Election or CheckFreshness.
func DefaultConfig(cfg *rest.Config, controllers []controller.Registration) (Config, error) {
	if cfg == nil {
		return Config{}, errors.New("no rest.Config")
	}
	o := NewOptions(controllers)
	o.REST = rest.CopyConfig(cfg)
	o.REST.RateLimiter, o.REST.Timeout = nil, 0 // a timeout ends watches
	o.REST.WarningHandler, o.REST.WarningHandlerWithContext = rest.NoWarnings{}, nil
	return o.Complete()
}

// validateConfig returns the problems of c.
func (c *Config) validateConfig() error {
	if c.REST == nil {
		return errors.New("no rest.Config")
	}
	errs := append(c.Election.Validate(), c.Serving.Validate()...)
	if c.REST.Dial != nil {
		errs = append(errs, errors.New("rest.Config.Dial would not be used: the manager dials connections that the manager can close"))
	}
	if c.REST.Transport != nil && (c.Election.Enabled || c.CheckFreshness) {
		errs = append(errs, errors.New("rest.Config.Transport has connections that the manager cannot close: "+
			"Election and CheckFreshness need them closed"))
	}
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		errs = append(errs, errors.New("client-go's feature gate AtomicFIFO is off: "+
			"without the gate a cache cannot return the version that it has reached"))
	}
	for i, r := range c.Controllers {
		if slices.Contains(controllerNames(c.Controllers[:i]), r.Name) {
			errs = append(errs, fmt.Errorf("%s is given twice", r.Name))
		} else if r.Config != nil {
			errs = append(errs, r.Config.Validate()...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// configzName is upstream's API group of the /configz document.
const configzName = "kubecontrollermanager.config.k8s.io"

// configzDocument returns the /configz page: the sections of kube-controller-manager's
// KubeControllerManagerConfiguration (k8s.io/kube-controller-manager/config/v1alpha1) that exist here.
func configzDocument(cfg Config) any {
	e, rc := cfg.Election, cfg.REST
	generic := map[string]any{
		"Port":                    cfg.Serving.Port,
		"Address":                 cfg.Serving.BindAddress.String(),
		"MinResyncPeriod":         cfg.MinResync.String(),
		"ControllerStartInterval": cfg.StartInterval.String(),
		"Controllers":             controllerNames(cfg.Controllers),
		"LeaderElection": map[string]any{
			"leaderElect": e.Enabled, "leaseDuration": e.LeaseDuration.String(), "renewDeadline": e.RenewDeadline.String(),
			"retryPeriod":  e.RetryPeriod.String(),
			"resourceLock": leadership.ResourceLock, "resourceName": e.Name, "resourceNamespace": e.Namespace,
		},
		"ClientConnection": map[string]any{"kubeconfig": "", "acceptContentTypes": rc.AcceptContentTypes,
			"contentType": rc.ContentType, "qps": rc.QPS, "burst": rc.Burst},
		"Debugging": map[string]any{"enableProfiling": cfg.Serving.Profiling,
			"enableContentionProfiling": cfg.Serving.Profiling && cfg.Serving.ContentionProfiling},
	}
	page := map[string]any{"kind": "KubeControllerManagerConfiguration", "apiVersion": configzName + "/v1alpha1", "Generic": generic}
	for _, c := range cfg.Known {
		if c.Section != "" {
			page[c.Section] = configzSection(c.Config)
		}
	}
	return page
}

// configzSection returns the fields of a controller's configuration that have a json tag. Durations have the
// format of Go.
func configzSection(cfg controller.Config) map[string]any {
	out := map[string]any{}
	fields := reflect.Indirect(reflect.ValueOf(cfg))
	for i := range fields.NumField() {
		name, value := fields.Type().Field(i).Tag.Get("json"), fields.Field(i).Interface()
		if name == "" || name == "-" {
			continue
		}
		if d, ok := value.(time.Duration); ok {
			value = metav1.Duration{Duration: d}
		}
		out[name] = value
	}
	return out
}
