package app

import (
	"slices"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"

	"minikcm/pkg/controller"
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
	version versionFlag
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

// ClientOptions say how to reach the API server.
type ClientOptions struct {
	Kubeconfig  string
	Master      string
	ContentType string
	QPS         float32
	Burst       int32
	// ServiceAccounts gives each controller the identity of a service account of its own, as kubeadm has it.
	ServiceAccounts bool
}

// LeaderElectionOptions are kube-controller-manager's, plus WarmStandby.
type LeaderElectionOptions struct {
	LeaderElect       bool
	LeaseDuration     time.Duration
	RenewDeadline     time.Duration
	RetryPeriod       time.Duration
	ResourceLock      string
	ResourceName      string
	ResourceNamespace string
	WarmStandby       bool
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
			LeaderElect:   true,
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   2 * time.Second,
			ResourceLock:  leasesLock,
			// Ours: a name of our own, so that a kube-controller-manager with the other loops can lead beside us.
			ResourceName:      Name,
			ResourceNamespace: "kube-system",
			WarmStandby:       true,
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
	o.version.addFlag(global)
	globalflag.AddGlobalFlags(global, Name, logs.SkipLoggingConfigurationFlags())
	o.describe(fss)
	o.flags = fss
	return fss
}
