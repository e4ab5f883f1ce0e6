package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	baseversion "k8s.io/component-base/version"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Options are the values of all flags, as given. [Options.Validate] says whether they make sense,
// [Options.Config] turns them into what the rest of the program works with.
type Options struct {
	Generic        GenericOptions
	Client         ClientOptions
	LeaderElection LeaderElectionOptions
	Serving        serving.Config

	Metrics *metrics.Options
	Logs    *logs.Options

	controllers []controller.Registration // with the configurations that their flags are bound to

	gates   *gates
	version string                // --version: true, false or raw
	flags   cliflag.NamedFlagSets // all flags by section, as given; shown by /flagz
	unused  []string              // flags of kube-controller-manager that were given and mean nothing here
}

// GenericOptions are about the process as a whole.
type GenericOptions struct {
	Controllers               []string
	MinResyncPeriod           time.Duration
	ControllerStartInterval   time.Duration
	ControllerShutdownTimeout time.Duration
}

// NewOptions returns the defaults for a manager of these controllers, as a rule [Controllers] and some of your own. Unless a line says otherwise
// they are kube-controller-manager v1.37's. Flags are bound to the configurations of the controllers, so they belong to one Options only.
func NewOptions(controllers []controller.Registration) *Options {
	return &Options{
		controllers: controllers,
		Generic: GenericOptions{
			Controllers:               []string{"*"},
			MinResyncPeriod:           12 * time.Hour,
			ControllerShutdownTimeout: 10 * time.Second,
		},
		Client: ClientOptions{
			ContentType: "application/vnd.kubernetes.protobuf",
			// Ours: no rate limit. Load is bounded by the number of workers and of writes in flight, and by the API
			// server's priority and fairness. Upstream's 20/s makes 1,000 pods take 49 s.
			QPS:   -1,
			Burst: 30,
		},
		LeaderElection: LeaderElectionOptions{
			Config: leadership.Config{
				Enabled:       true,
				LeaseDuration: 15 * time.Second,
				RenewDeadline: 10 * time.Second,
				RetryPeriod:   2 * time.Second,
				Namespace:     "kube-system",
				// Ours: a name of our own, so that a kube-controller-manager with the other loops can lead beside us.
				Name: Name,
			},
			ResourceLock: leasesLock,
		},
		Serving: serving.DefaultConfig(),
		Metrics: metrics.NewOptions(),
		Logs:    logs.NewOptions(),
		gates:   newGates(controllers),
	}
}

// Flags returns all flags, bound to o, in upstream's sections and order. It is called once per Options.
func (o *Options) Flags() cliflag.NamedFlagSets {
	fss := cliflag.NamedFlagSets{NormalizeNameFunc: cliflag.WordSepNormalizeFunc}
	fss.FlagSet("debugging") // comes first
	generic := fss.FlagSet("generic")
	o.Generic.addFlags(generic, o.controllers)
	o.Client.addGenericFlags(generic)
	o.LeaderElection.addFlags(generic)
	o.gates.addFlags(generic)
	o.Serving.AddFlags(&fss)
	byName := slices.SortedFunc(slices.Values(o.controllers), func(a, b controller.Registration) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range byName {
		if c.Config != nil {
			c.Config.AddFlags(fss.FlagSet(c.Name))
		}
	}
	o.Metrics.AddFlags(fss.FlagSet("metrics"))
	logsapi.AddFlags(o.Logs, fss.FlagSet("logs"))
	misc := fss.FlagSet("misc")
	o.Client.addMiscFlags(misc)
	addUnusedFlags(misc, &o.unused)
	global := fss.FlagSet("global")
	addVersionFlag(global, &o.version)
	globalflag.AddGlobalFlags(global, Name, logs.SkipLoggingConfigurationFlags())
	o.describe(fss)
	o.flags = fss
	return fss
}

func (o *GenericOptions) addFlags(fs *pflag.FlagSet, controllers []controller.Registration) {
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"Controllers to run: 'foo' switches foo on, '-foo' switches it off, '*' switches on all that no other item names"+
			exceptDisabled(controllers)+". The first item that names a controller decides.\nKnown: "+strings.Join(namesWithAliases(controllers), ", "))
	fs.DurationVar(&o.MinResyncPeriod, "min-resync-period", o.MinResyncPeriod,
		"Each informer replays its whole store to its handlers once in a random time between this and twice this. 0 never does.")
	fs.DurationVar(&o.ControllerStartInterval, "controller-start-interval", o.ControllerStartInterval,
		"At the start of a term each controller waits a random time between this and twice this. 0 starts all at once.")
	fs.DurationVar(&o.ControllerShutdownTimeout, "controller-shutdown-timeout", o.ControllerShutdownTimeout,
		"How long running syncs may take to finish when the process is told to stop. 0 waits forever.")
}

// Validate returns every problem, each naming its flag or its group of flags. It asks nobody and reads no file but
// --allow-metric-labels-manifest.
func (o *Options) Validate() []error {
	var p flagcheck.Problems
	for _, name := range o.unused {
		p.Addf(name, "not used by this manager, remove it")
	}
	p.Append(o.Generic.validate(o.controllers)...)
	p.Append(o.Client.validate()...)
	p.Append(o.LeaderElection.validate()...)
	p.Append(o.gates.validate()...)
	p.Append(o.Serving.Validate()...)
	for _, c := range o.controllers {
		if c.Config != nil {
			p.Append(c.Config.Validate()...)
		}
	}
	p.Append(validateMetrics(o.Metrics)...)
	for _, err := range logsapi.Validate(o.Logs, o.gates.gate, nil) {
		p = append(p, fmt.Errorf("logging flags: %w", err))
	}
	return p
}

func (o *GenericOptions) validate(controllers []controller.Registration) []error {
	var p flagcheck.Problems
	if err := unknownControllers(canonical(o.Controllers, aliases(controllers)), controllers); err != nil {
		p = append(p, err)
	}
	p.NotNegative("min-resync-period", o.MinResyncPeriod)
	p.NotNegative("controller-start-interval", o.ControllerStartInterval)
	p.NotNegative("controller-shutdown-timeout", o.ControllerShutdownTimeout)
	return p
}

// validateMetrics leaves --show-hidden-metrics-for-version out of the library's own check, which compares with the version that
// was linked in: ours is the program's, and what is hidden depends on the library's.
func validateMetrics(o *metrics.Options) []error {
	var p flagcheck.Problems
	kept := *o
	kept.ShowHiddenMetricsForVersion = ""
	for _, err := range kept.Validate() {
		p = append(p, fmt.Errorf("metrics flags: %w", err))
	}
	previous := apiversion.MustParse(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String()
	if v := o.ShowHiddenMetricsForVersion; v != "" && v != previous {
		p.Addf("show-hidden-metrics-for-version", "%q is not the previous minor version, %s, which is the only one that may be given", v, previous)
	}
	return p
}

// Config turns valid options into a configuration. It reads the kubeconfig file, so it can fail though
// [Options.Validate] found nothing; nothing is asked over the network.
func (o *Options) Config() (Config, error) {
	restConfig, err := o.Client.restConfig()
	if err != nil {
		return Config{}, err
	}
	return o.configFor(restConfig)
}

// configFor is Config for an API server that is known.
func (o *Options) configFor(restConfig *rest.Config) (Config, error) {
	identity, err := leadership.NewIdentity()
	if err != nil {
		return Config{}, err
	}
	return Config{
		Controllers:     o.enabledControllers(),
		Sections:        o.sections(),
		Enabled:         o.gates.gate.Enabled,
		REST:            restConfig,
		ServiceAccounts: o.Client.ServiceAccounts,
		MinResync:       o.Generic.MinResyncPeriod,
		StartInterval:   o.Generic.ControllerStartInterval,
		Election:        o.LeaderElection.config(identity, o.Generic.ControllerShutdownTimeout),
		WatchLiveness:   true,
		Serving:         o.serving(),
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
	return slices.DeleteFunc(slices.Clone(o.controllers), func(c controller.Registration) bool {
		return !enabled(c, items) || c.Disabled != nil && c.Disabled()
	})
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

// leftOut is a controller that * does not switch on, with its flags, which change nothing.
type leftOut struct {
	name  string
	flags []string
}

// leftOut returns the controllers that do not run though * is given, because they have to be named; those that an item switches off are not left out.
func (o *Options) leftOut() (out []leftOut) {
	items := canonical(o.Generic.Controllers, aliases(o.controllers))
	if !slices.Contains(items, "*") {
		return nil
	}
	for _, c := range o.controllers {
		if !c.DisabledByDefault || enabled(c, items) || slices.Contains(items, "-"+c.Name) {
			continue
		}
		l := leftOut{name: c.Name}
		if fs := o.flags.FlagSets[c.Name]; fs != nil {
			fs.VisitAll(func(f *pflag.Flag) { l.flags = append(l.flags, f.Name) })
		}
		out = append(out, l)
	}
	return out
}

// SetGates makes the feature gates that were given effective. Nothing may ask a gate before. What is wrong with them [Options.Validate] tells.
func (o *Options) SetGates() error { return o.gates.set() }

// Gate is the set of all feature gates.
func (o *Options) Gate() featuregate.FeatureGate { return o.gates.gate }

// UseGatesForLibraries hands the gates to the libraries that ask a global: client-go and the metrics package. It is for a process that is
// a controller manager, and called once, when the gates are set and before the first client is made.
func (o *Options) UseGatesForLibraries() { o.gates.useForLibraries() }

// Warn tells of valid options that are probably a mistake.
func (o *Options) Warn(log klog.Logger) {
	if len(o.gates.ignored) > 0 {
		log.Info("Ignoring feature gates that this program does not have", "gates", o.gates.ignored)
	}
	for _, c := range o.leftOut() {
		log.Info("Controller does not run: * leaves it out, and no other item of --controllers names it", "controller", c.name, "itsFlags", c.flags)
	}
	if len(o.enabledControllers()) == 0 {
		log.Info("No controller is enabled, nothing will be done", "controllers", o.Generic.Controllers)
	}
}
