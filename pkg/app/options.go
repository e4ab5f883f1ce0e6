package app

import (
	"fmt"
	"io"
	"math"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	baseversion "k8s.io/component-base/version"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
	"minikcm/pkg/kubeclient"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Options holds the values of all flags. Flags are bound to its fields and those of Config. [Options.Complete]
// fills the rest of Config from the other fields.
type Options struct {
	Config
	Kubeconfig      string
	Master          string
	ContentType     string
	QPS             float32
	Burst           int32
	ControllersFlag []string // items of --controllers

	Metrics *metrics.Options
	Logs    *logs.Options

	*gates
	version string                // true, false or raw
	flags   cliflag.NamedFlagSets // shown by /flagz
	unused  []string              // flags of kube-controller-manager that were given and have no effect here
}

// NewOptions returns the defaults for a manager of these controllers, as a rule [Controllers] and some of your
// own. Defaults are kube-controller-manager v1.37's unless a comment says otherwise. Flags are bound to the
// configurations of the controllers, so the controllers belong to one Options only.
func NewOptions(controllers []controller.Registration) *Options {
	gates := newGates(controllers)
	return &Options{
		Config: Config{
			Controllers: controllers,
			Known:       controllers,
			Enabled:     gates.gate.Enabled,
			MinResync:   12 * time.Hour,
			Election: leadership.Config{
				Enabled:       true,
				LeaseDuration: 15 * time.Second,
				RenewDeadline: 10 * time.Second,
				RetryPeriod:   2 * time.Second,
				Namespace:     "kube-system",
				// Ours: a separate name, so that a kube-controller-manager with the other controllers can lead at
				// the same time.
				Name:            Name,
				ResourceLock:    leadership.ResourceLock,
				ShutdownTimeout: 10 * time.Second,
			},
			CheckFreshness: true,
			Serving:        serving.DefaultConfig(),
		},
		ContentType: runtime.ContentTypeProtobuf,
		// Ours: no rate limit. The number of workers, the writes in flight and the API server's priority and
		// fairness bound the load. With upstream's 20/s the creation of 1,000 pods takes 49 s.
		QPS:             -1,
		Burst:           30,
		ControllersFlag: []string{"*"},
		Metrics:         metrics.NewOptions(),
		Logs:            logs.NewOptions(),
		gates:           gates,
	}
}

// Flags returns all flags, bound to o, in upstream's sections and order. It is called once per Options.
func (o *Options) Flags() cliflag.NamedFlagSets {
	fss := cliflag.NamedFlagSets{NormalizeNameFunc: cliflag.WordSepNormalizeFunc}
	fss.FlagSet("debugging") // the first section
	generic := fss.FlagSet("generic")
	o.addGenericFlags(generic)
	o.Election.AddFlags(generic)
	o.gates.addFlags(generic)
	o.Serving.AddFlags(&fss)
	byName := slices.SortedFunc(slices.Values(o.Known), func(a, b controller.Registration) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range byName {
		if c.Config != nil {
			c.Config.AddFlags(fss.FlagSet(c.Name))
		}
	}
	o.Metrics.AddFlags(fss.FlagSet("metrics"))
	logsapi.AddFlags(o.Logs, fss.FlagSet("logs"))
	misc := fss.FlagSet("misc")
	misc.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig with the address of the API server and the credentials of this process. "+
			"Without --kubeconfig and --master the service account of the pod is used.")
	misc.StringVar(&o.Master, "master", o.Master, "Address of the API server. Overrides the address in --kubeconfig.")
	addUnusedFlags(misc, &o.unused)
	global := fss.FlagSet("global")
	global.StringVar(&o.version, "version", "false", "Print the version and exit; --version=raw prints all build information.")
	global.Lookup("version").NoOptDefVal = "true"
	globalflag.AddGlobalFlags(global, Name, logs.SkipLoggingConfigurationFlags())
	o.flags = fss
	return fss
}

func (o *Options) addGenericFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.ControllersFlag, "controllers", o.ControllersFlag,
		"Controllers to run: 'foo' enables foo, '-foo' disables foo, '*' enables all controllers that no other item names. "+
			"The first item that names a controller decides.\nKnown: "+namesWithAliases(o.Known))
	fs.DurationVar(&o.MinResync, "min-resync-period", o.MinResync,
		"Each informer replays its store to its handlers once in a random time between this and twice this. 0 disables resyncs.")
	fs.DurationVar(&o.StartInterval, "controller-start-interval", o.StartInterval,
		"Each controller waits a random time between this and twice this when leading starts. 0 starts all at once.")
	fs.StringVar(&o.ContentType, "kube-api-content-type", o.ContentType,
		"Content type of requests to the API server: application/vnd.kubernetes.protobuf, "+
			"application/json or application/yaml, parameters allowed. Empty: JSON.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS,
		"Requests per second that each client may send on average. Negative: no client-side limit; the number of workers "+
			"and the API server's priority and fairness bound the load. 0: client-go's default of 5.")
	fs.Int32Var(&o.Burst, "kube-api-burst", o.Burst,
		"Requests that each client may send at once above the rate of --kube-api-qps, if that rate is limited. 0: client-go's default of 10.")
	fs.BoolVar(&o.ServiceAccounts, "use-service-account-credentials", o.ServiceAccounts,
		"Let each controller use a service account in kube-system with upstream's name, so that upstream's "+
			"roles for controllers apply. Watches, events and the Lease use the identity of this process.")
}

// Validate returns every problem, each with the name of a flag or of a group of flags. It sends no request and
// reads no file but --allow-metric-labels-manifest.
func (o *Options) Validate() []error {
	var p flagcheck.Problems
	for _, name := range o.unused {
		p.Addf(name, "not used by this manager; remove it")
	}
	if unknown := unknownItems(o.Known, o.ControllersFlag); len(unknown) > 0 {
		p.Addf("controllers", "%s; known are %s", strings.Join(unknown, ", "), namesWithAliases(o.Known))
	}
	if o.Election.Enabled && o.Election.ResourceLock == "" { // as a flag, it must not be empty
		p.Addf("leader-elect-resource-lock", "must be %q", leadership.ResourceLock)
	}
	p.NotNegative("min-resync-period", o.MinResync)
	p.NotNegative("controller-start-interval", o.StartInterval)
	switch qps := float64(o.QPS); {
	case math.IsNaN(qps) || math.IsInf(qps, 0):
		p.Addf("kube-api-qps", "%v is not a rate", o.QPS)
	case o.QPS >= 0 && o.Burst < 0:
		p.Addf("kube-api-burst", "%d is negative: nothing would be sent with --kube-api-qps=%v", o.Burst, o.QPS)
	}
	if _, err := mediaType(o.ContentType); err != nil {
		p.Addf("kube-api-content-type", "%w", err)
	}
	p = append(p, o.Election.Validate()...)
	p = append(p, o.gates.validateGates()...)
	p = append(p, o.Serving.Validate()...)
	for _, c := range o.Known {
		if c.Config != nil {
			p = append(p, c.Config.Validate()...)
		}
	}
	p = append(p, validateMetrics(o.Metrics)...)
	for _, err := range logsapi.Validate(o.Logs, o.gates.gate, nil) {
		p = append(p, fmt.Errorf("logging flags: %w", err))
	}
	return p
}

// validateMetrics checks --show-hidden-metrics-for-version itself: the library compares the value with the
// version of this program, but the version of the library decides which metrics are hidden.
func validateMetrics(o *metrics.Options) []error {
	var p flagcheck.Problems
	others := *o
	others.ShowHiddenMetricsForVersion = ""
	for _, err := range others.Validate() {
		p = append(p, fmt.Errorf("metrics flags: %w", err))
	}
	previous := apiversion.MustParse(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String()
	if v := o.ShowHiddenMetricsForVersion; v != "" && v != previous {
		p.Addf("show-hidden-metrics-for-version", "%q is not the previous minor version, %s, which is the only one that may be given", v, previous)
	}
	return p
}

// mediaType returns a content type without its parameters. An empty content type means JSON, as in client-go.
// It returns an error if no client can encode the type.
func mediaType(contentType string) (string, error) {
	if contentType == "" {
		return runtime.ContentTypeJSON, nil
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", fmt.Errorf("%q: %w", contentType, err)
	}
	if _, known := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), kind); !known {
		return "", fmt.Errorf("%q is not an encoding of client-go", contentType)
	}
	return kind, nil
}

// Complete returns the configuration of the manager. It reads the kubeconfig file unless REST is set, and
// sends no request. It may fail for valid options.
func (o *Options) Complete() (Config, error) {
	cfg := o.Config
	var err error
	if cfg.REST == nil {
		if cfg.REST, err = kubeclient.Load("kubeconfig", o.Kubeconfig, o.Master); err != nil {
			return Config{}, err
		}
	}
	rc := rest.CopyConfig(cfg.REST)
	rc.UserAgent = kubeclient.UserAgent(Name)
	rc.DisableCompression = true // cheap on a local network, expensive in CPU; as upstream
	rc.ContentType, rc.AcceptContentTypes = o.ContentType, "application/vnd.kubernetes.protobuf,application/json"
	switch kind, err := mediaType(o.ContentType); {
	case err != nil:
		return Config{}, err
	case kind == runtime.ContentTypeJSON:
		rc.AcceptContentTypes = runtime.ContentTypeJSON
	}
	rc.QPS, rc.Burst = o.QPS, int(o.Burst)
	if rc.QPS > 0 && rc.Burst == 0 {
		rc.Burst = rest.DefaultBurst // a Clientset accepts no rate without a burst
	}
	cfg.REST = rc

	if cfg.Election.Identity, err = leadership.NewIdentity(); err != nil {
		return Config{}, err
	}
	cfg.Controllers = slices.DeleteFunc(slices.Clone(o.Known), func(c controller.Registration) bool {
		return !isEnabled(c, o.ControllersFlag) || c.Disabled != nil && c.Disabled()
	})
	cfg.Serving.Flags = o.flags
	cfg.Serving.Flagz = o.gates.gate.Enabled(zpagesfeatures.ComponentFlagz)
	cfg.Serving.Statusz = o.gates.gate.Enabled(zpagesfeatures.ComponentStatusz)
	cfg.Serving.EmulationVersion = o.gates.version.EmulationVersion().String()
	return cfg, nil
}

// PrintVersion writes the output of --version and reports whether the flag was given.
func (o *Options) PrintVersion(w io.Writer) (given bool, err error) {
	switch o.version {
	case "false":
		return false, nil
	case "true":
		_, err = fmt.Fprintf(w, "%s %s\n", Name, baseversion.Get().GitVersion)
	case "raw":
		_, err = fmt.Fprintf(w, "%#v\n", baseversion.Get())
	default:
		err = fmt.Errorf("--version=%s: want true, false or raw", o.version)
	}
	return true, err
}

// LogStart logs the version, the controllers, and valid options that are probably mistakes. cfg is the result of
// [Options.Complete].
func (o *Options) LogStart(log klog.Logger, cfg Config) {
	log.Info("Starting", "version", baseversion.Get().GitVersion, "controllers", controllerNames(cfg.Controllers))
	if len(o.gates.ignored) > 0 {
		log.Info("Ignoring feature gates that this program does not have", "gates", o.gates.ignored)
	}
	if len(cfg.Controllers) == 0 {
		log.Info("No controller is enabled", "controllers", o.ControllersFlag)
	}
}
