package app

import (
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	zpagesfeatures "k8s.io/component-base/zpages/features"

	"minikcm/pkg/controller"
	"minikcm/pkg/kubeclient"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Config is what the manager works with. It is made by [Options.Config] and not changed afterwards; whoever needs a
// variation copies it.
type Config struct {
	// Controllers are the enabled ones, in start order. Empty is allowed: the process serves and takes the lease, and does nothing else.
	Controllers []controller.Registration
	// Sections are the configurations of all controllers, those that are not enabled too, as /configz shows them.
	Sections map[string]controller.Config
	// Enabled reports whether a feature gate of a controller is on.
	Enabled func(featuregate.Feature) bool

	// REST reaches the API server as this process. Its user agent is the program's; each client appends its purpose
	// with rest.AddUserAgent. It is copied before it is changed.
	REST *rest.Config

	// ServiceAccounts makes each controller work as the service account of its name in kube-system.
	ServiceAccounts bool

	// MinResync is the lower bound of the informers' resync period; the period is a random time in [MinResync, 2 MinResync).
	// 0: they never resync.
	MinResync time.Duration
	// StartInterval spreads the controllers' start at the beginning of a term: each waits a random time in
	// [StartInterval, 2 StartInterval). 0 starts all at once.
	StartInterval time.Duration

	// Election says how the lease is held.
	Election leadership.Config
	// Promises are the behaviours on top of upstream's.
	Promises Promises

	// Serving says what the HTTPS endpoint offers.
	Serving serving.Config
}

// Promises are the behaviours that kube-controller-manager does not have. All are on unless a flag says otherwise.
type Promises struct {
	WarmStandby   bool // --leader-elect-warm-standby
	FencedWrites  bool // feature gates from here on
	LeaseWatch    bool
	WatchLiveness bool
}

// Config turns valid options into a configuration. It reads the kubeconfig file, so it can fail though
// [Options.Validate] found nothing; nothing is asked over the network.
func (o *Options) Config() (Config, error) {
	restConfig, err := o.Client.restConfig()
	if err != nil {
		return Config{}, err
	}
	identity, err := leadership.NewIdentity()
	if err != nil {
		return Config{}, err
	}
	on := o.gates.gate.Enabled
	return Config{
		Controllers:     o.enabledControllers(),
		Sections:        o.sections(),
		Enabled:         on,
		REST:            restConfig,
		ServiceAccounts: o.Client.ServiceAccounts,
		MinResync:       o.Generic.MinResyncPeriod,
		StartInterval:   o.Generic.ControllerStartInterval,
		Election:        o.LeaderElection.config(identity, o.Generic.ControllerShutdownTimeout),
		Promises: Promises{
			WarmStandby:   o.LeaderElection.WarmStandby,
			FencedWrites:  on(FencedWrites),
			LeaseWatch:    on(LeaseWatch),
			WatchLiveness: on(WatchLiveness),
		},
		Serving: o.serving(),
	}, nil
}

// sections are the configurations that have a place in /configz.
func (o *Options) sections() map[string]controller.Config {
	sections := map[string]controller.Config{}
	for _, c := range o.controllers {
		if c.Section != "" {
			sections[c.Section] = c.Config
		}
	}
	return sections
}

// enabledControllers are those that --controllers switches on.
func (o *Options) enabledControllers() []controller.Registration {
	items := canonical(o.Generic.Controllers, aliases(o.controllers))
	return slices.DeleteFunc(slices.Clone(o.controllers), func(c controller.Registration) bool { return !enabled(c.Name, items) })
}

func (o *LeaderElectionOptions) config(identity string, shutdownTimeout time.Duration) leadership.Config {
	return leadership.Config{
		Enabled:         o.LeaderElect,
		LeaseDuration:   o.LeaseDuration,
		RenewDeadline:   o.RenewDeadline,
		RetryPeriod:     o.RetryPeriod,
		Namespace:       o.ResourceNamespace,
		Name:            o.ResourceName,
		Identity:        identity,
		ShutdownTimeout: shutdownTimeout,
	}
}

// restConfig reads the kubeconfig, or the pod's service account. Errors are one line and name the flag.
func (o *ClientOptions) restConfig() (*rest.Config, error) {
	cfg, err := kubeclient.Load("kubeconfig", o.Kubeconfig, o.Master)
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("--kubeconfig: needed to reach an API server, because this process does not run in a pod with a service account")
	}
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = kubeclient.UserAgent(Name)
	cfg.DisableCompression = true // cheap on a local network, expensive in CPU; as upstream
	cfg.ContentType = o.ContentType
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if kind, _ := o.mediaType(); kind == runtime.ContentTypeJSON {
		cfg.AcceptContentTypes = runtime.ContentTypeJSON
	}
	cfg.QPS, cfg.Burst = o.QPS, int(o.Burst) // 0 is client-go's own default, as upstream
	return cfg, nil
}

// mediaType is the type behind --kube-api-content-type, without parameters; empty means JSON, as for client-go. An error means that no
// client could encode a request.
func (o *ClientOptions) mediaType() (string, error) {
	if o.ContentType == "" {
		return runtime.ContentTypeJSON, nil
	}
	kind, _, err := mime.ParseMediaType(o.ContentType)
	if err != nil {
		return "", fmt.Errorf("%q: %w", o.ContentType, err)
	}
	var known []string
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		known = append(known, info.MediaType)
	}
	if !slices.Contains(known, kind) {
		return "", fmt.Errorf("%q is none of %s", o.ContentType, strings.Join(known, ", "))
	}
	return kind, nil
}

// serving adds what /flagz and /statusz show.
func (o *Options) serving() serving.Config {
	cfg := o.Serving
	cfg.Flags = o.flags
	cfg.Flagz = o.gates.gate.Enabled(zpagesfeatures.ComponentFlagz)
	cfg.Statusz = o.gates.gate.Enabled(zpagesfeatures.ComponentStatusz)
	cfg.EmulationVersion = o.gates.version.EmulationVersion().String()
	return cfg
}
