package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

// Registration is all that the manager knows of a controller. It stands in the controller's own package.
type Registration struct {
	Name  string // canonical, as users write it into manifests; never changed
	Alias string // another name that --controllers takes; empty: none
	Agent string // end of the user agent, and service account with --use-service-account-credentials; upstream's where it has one

	// DisabledByDefault is upstream's word for a controller that --controllers has to name: * is not enough.
	DisabledByDefault bool
	// Off reports whether the controller's own flags switch it off. It is asked after the flags have been parsed. nil: no flag can.
	Disabled func() bool

	// Watches are the types it reads from caches, without verbs; all controllers share them, so the process itself has the rights. Leases are
	// not among them, see LeaseNamespaces.
	WatchPermissions []Access
	// Needs are the rights that its own requests take: with --use-service-account-credentials, those of its account.
	Permissions []Access
	// OnlyReads reports whether the controller sends no writes with its present flags: then only the get, list and watch verbs of Needs are required.
	// It is asked after the flags have been parsed. nil: it writes.
	ReadOnly func() bool
	// LeaseNamespaces are the namespaces whose Leases it reads.
	LeaseNamespaces []string
	// FollowsOwners is for a controller that needs the owner references of objects of every type. The cache of Leases then keeps theirs, which it
	// drops otherwise, and covers all namespaces.
	FollowsOwners bool
	// Gates are its feature gates.
	Gates map[featuregate.Feature]featuregate.VersionedSpecs

	// Config is what its flags are bound to, as a pointer; nil: it has no flags.
	Config Config
	// Section is what /configz calls Config, upstream's name where it has one; empty: it is not shown.
	Section string

	// New builds the controller. It registers handlers with the caches, which are started afterwards, and sends no request.
	New func(Base) (Controller, error)
}

// Config is what a controller's flags are bound to. Fields with a json tag are shown by /configz.
type Config interface {
	// AddFlags adds a flag for each field that users may set; what the fields hold is the default.
	AddFlags(*pflag.FlagSet)
	// Validate returns every problem, each naming its flag.
	Validate() []error
}

// Controller is one control loop.
type Controller interface {
	// Run works for one term: it enqueues every key, then blocks until ctx is cancelled and every goroutine it started
	// has returned. It is called again for the next term. A non-nil error stops the process; errors about one object are
	// retried inside and never returned.
	Run(ctx context.Context) error
	// Healthy returns an error that says what stands still, if something does. It may be called at any time.
	Healthy() error
}

// Base is what a controller is built on.
type Base struct {
	Client kubernetes.Interface // fenced: it writes only while the lease is held
	REST   *rest.Config         // Client was built from it; copy it before you change it
	Caches *caches.Caches
	// Recorder returns a recorder of events whose source is component.
	Recorder func(component string) record.EventRecorder
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
	// Drain is how long syncs may go on when a term ends, see [LoopConfig].
	Drain time.Duration
	// Enabled reports whether a feature gate is on.
	Enabled func(featuregate.Feature) bool
	// APIServers counts the API servers that are known by their Leases; nil: nobody watches those.
	APIServers func() int
}

// PodWorkers is the number of workers of loops whose pods come in bursts, as when a node or a zone dies. It bounds the requests in flight: more of
// them do not make a small API server faster.
const PodWorkers = 32

// TerminatingReplicas is upstream's gate that fills status.terminatingReplicas of ReplicaSets and Deployments, see [TerminatingReplicasStages].
const TerminatingReplicas featuregate.Feature = "DeploymentReplicaSetTerminatingReplicas"

// TerminatingReplicasStages are those of kube-controller-manager v1.37.
func TerminatingReplicasStages() featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{
		{Version: apiversion.MajorMinor(1, 33), Default: false, PreRelease: featuregate.Alpha},
		{Version: apiversion.MajorMinor(1, 35), Default: true, PreRelease: featuregate.Beta},
	}
}

// OldestEmulation is how far back --emulated-version may go: three minor versions, as upstream.
func OldestEmulation() *apiversion.Version { return apiversion.MajorMinor(1, 34) }

// Access is a set of permissions on one resource, or on one non-resource path.
type Access struct {
	Group       string
	Resource    string // with a slash before a subresource
	Namespace   string // empty: in all
	Name        string // empty: any
	NonResource string // a path instead of the four above
	Verbs       []string
	Impact      string // what the controller cannot do when one of the verbs is refused; follows its name
	Optional    bool   // it does its work all the same, if not as well: that the right is missing is logged, and no reason not to start
}
