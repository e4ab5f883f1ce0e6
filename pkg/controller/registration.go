package controller

import (
	"context"
	"net/http"
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
	Named bool   // it runs only if --controllers names it, * is not enough
	Agent string // end of the user agent, and service account with --use-service-account-credentials; upstream's where it has one

	// Off says, when the flags have been read, that one of them has switched it off; nil: none can.
	Off func() bool

	// Watches are the types it reads from caches, without verbs; all controllers share them, so the process itself has the rights. Leases are
	// not among them, see LeaseNamespaces.
	Watches []Access
	// Needs are the rights that its own requests take: with --use-service-account-credentials, those of its account.
	Needs []Access
	// OnlyReads says, when the flags have been read, that it changes nothing: of Needs only the verbs that read count then; nil: it writes.
	OnlyReads func() bool
	// LeaseNamespaces are the namespaces whose Leases it reads.
	LeaseNamespaces []string
	// FollowsOwners: it wants to know the owners of objects of all types, so that caches keep those of Leases, too, of all namespaces.
	FollowsOwners bool
	// Gates are its feature gates. One that is GA and not locked is a promise: switching it off is logged.
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

// Debugger is a controller that shows what it knows, to whoever may get the path /debug/controllers/<name>/graph.
type Debugger interface {
	Debug() http.Handler
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

// PodWorkers is how many pods a loop works on at once whose work comes in bursts, when a node or a zone dies. Then the bound is on requests
// in flight: more than this does not make a small API server faster.
const PodWorkers = 32

// Gates that several controllers have.
const (
	// TerminatingReplicas fills status.terminatingReplicas of ReplicaSets and Deployments; upstream's, see [TerminatingReplicasStages].
	TerminatingReplicas featuregate.Feature = "DeploymentReplicaSetTerminatingReplicas"
	// VerifyFirstWrite is ours: the first write for an object in a term is decided on a consistent read. It is a [Promise].
	VerifyFirstWrite featuregate.Feature = "VerifyFirstWrite"
)

// TerminatingReplicasStages are those of kube-controller-manager v1.37.
func TerminatingReplicasStages() featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{
		{Version: apiversion.MajorMinor(1, 33), Default: false, PreRelease: featuregate.Alpha},
		{Version: apiversion.MajorMinor(1, 35), Default: true, PreRelease: featuregate.Beta},
	}
}

// Promise is the gate of a behaviour that is on unless somebody gives it up. As beta it would go with AllBeta=false, which is given to whole
// clusters and means upstream's experiments.
func Promise() featuregate.VersionedSpecs {
	return featuregate.VersionedSpecs{{Version: OldestEmulation(), Default: true, PreRelease: featuregate.GA}}
}

// OldestEmulation is how far back --emulated-version may go: three minor versions, as upstream.
func OldestEmulation() *apiversion.Version { return apiversion.MajorMinor(1, 34) }

// Access is one thing with all that has to be done to it.
type Access struct {
	Group       string
	Resource    string // with a slash before a subresource
	Namespace   string // empty: in all
	Name        string // empty: any
	NonResource string // a path instead of the four above
	Verbs       []string
	Without     string // what the controller cannot do when one of the verbs is refused; follows its name
	Optional    bool   // it does its work all the same, if not as well: that the right is missing is logged, and no reason not to start
}
