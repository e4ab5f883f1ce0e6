package app

import (
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"

	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
)

// Options are the values of all flags, as given. [Options.Validate] says whether they make sense,
// [Options.Config] turns them into what the rest of the program works with.
type Options struct {
	Debugging      DebuggingOptions
	Generic        GenericOptions
	Client         ClientOptions
	LeaderElection LeaderElectionOptions

	Serving        ServingOptions
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions

	ReplicaSet    ReplicaSetOptions
	NodeLifecycle NodeLifecycleOptions
	PodGC         PodGCOptions
	Namespace     NamespaceOptions

	Metrics *metrics.Options
	Logs    *logs.Options

	gates   *gates
	version versionFlag
	flags   cliflag.NamedFlagSets // all flags by section, as given; shown by /flagz
	unused  []string              // flags of kube-controller-manager that were given and mean nothing here
}

// DebuggingOptions switch the profiling endpoints.
type DebuggingOptions struct {
	Profiling           bool
	ContentionProfiling bool
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

// ReplicaSetOptions tune the ReplicaSet controller.
type ReplicaSetOptions struct {
	ConcurrentSyncs int32
}

// NodeLifecycleOptions tune the node lifecycle controller; rates are nodes per second.
type NodeLifecycleOptions struct {
	MonitorPeriod             time.Duration
	MonitorGracePeriod        time.Duration
	StartupGracePeriod        time.Duration
	EvictionRate              float32
	SecondaryEvictionRate     float32
	LargeClusterSizeThreshold int32
	UnhealthyZoneThreshold    float32
}

// PodGCOptions tune the pod garbage collector.
type PodGCOptions struct {
	TerminatedPodThreshold int32
}

// NamespaceOptions tune the namespace controller.
type NamespaceOptions struct {
	ConcurrentSyncs     int32
	SyncPeriod          time.Duration
	DeletionGracePeriod time.Duration
}

// NewOptions returns the defaults. Unless a line says otherwise they are kube-controller-manager v1.37's.
func NewOptions() *Options {
	return &Options{
		Debugging: DebuggingOptions{Profiling: true},
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
		Serving:        defaultServingOptions(),
		Authentication: defaultAuthenticationOptions(),
		Authorization:  defaultAuthorizationOptions(),
		ReplicaSet:     ReplicaSetOptions{ConcurrentSyncs: 5},
		NodeLifecycle: NodeLifecycleOptions{
			MonitorPeriod:             5 * time.Second,
			MonitorGracePeriod:        50 * time.Second,
			StartupGracePeriod:        time.Minute,
			EvictionRate:              0.1,
			SecondaryEvictionRate:     0.01,
			LargeClusterSizeThreshold: 50,
			UnhealthyZoneThreshold:    0.55,
		},
		PodGC: PodGCOptions{TerminatedPodThreshold: 12500},
		Namespace: NamespaceOptions{
			ConcurrentSyncs:     10,
			SyncPeriod:          5 * time.Minute,
			DeletionGracePeriod: 5 * time.Second, // a constant upstream
		},
		Metrics: metrics.NewOptions(),
		Logs:    logs.NewOptions(),
		gates:   newGates(),
	}
}

// Flags returns all flags, bound to o, in upstream's sections and order. It is called once per Options.
func (o *Options) Flags() cliflag.NamedFlagSets {
	fss := cliflag.NamedFlagSets{NormalizeNameFunc: cliflag.WordSepNormalizeFunc}
	o.Debugging.addFlags(fss.FlagSet("debugging"))
	generic := fss.FlagSet("generic")
	o.Generic.addFlags(generic)
	o.Client.addGenericFlags(generic)
	o.LeaderElection.addFlags(generic)
	o.gates.addFlags(generic)
	o.Serving.addFlags(fss.FlagSet("secure serving"))
	o.Authentication.addFlags(fss.FlagSet("authentication"))
	o.Authorization.addFlags(fss.FlagSet("authorization"))
	o.Namespace.addFlags(fss.FlagSet(namespace.Name))
	o.NodeLifecycle.addFlags(fss.FlagSet(node.Name))
	o.PodGC.addFlags(fss.FlagSet(podgc.Name))
	o.ReplicaSet.addFlags(fss.FlagSet(replicaset.Name))
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
