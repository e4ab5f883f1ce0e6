package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
)

// Registration declares a controller, in the package of the controller.
type Registration struct {
	Name  string // canonical name, for --controllers and manifests; never changed
	Alias string // optional second name for --controllers
	Agent string // suffix of the user agent and name of the service account; upstream's if it has one

	// Disabled reports, after the flags were parsed, whether a flag of the controller disables it.
	// Optional.
	Disabled func() bool

	// WatchPermissions lists the types that the controller reads from caches, without verbs. All
	// controllers share the caches, so the process needs these permissions. Leases are listed in
	// LeaseNamespaces instead.
	WatchPermissions []Access
	// Permissions lists the permissions for the requests of the controller itself. With --use-service-
	// account-credentials its account needs them.
	Permissions []Access
	// ReadOnly reports, after the flags were parsed, whether the controller sends no writes. It then needs
	// only the get, list and watch verbs of Permissions. Optional.
	ReadOnly func() bool
	// LeaseNamespaces lists the namespaces whose Leases the controller reads.
	LeaseNamespaces []string
	// FollowsOwners is set by a controller that needs the owner references of all objects. The cache of
	// Leases then keeps owner references and covers all namespaces.
	FollowsOwners bool
	// CachedFields are the optional fields of cached objects that the controller reads.
	CachedFields caches.Fields
	// Gates holds the feature gates of the controller.
	Gates map[featuregate.Feature]featuregate.VersionedSpecs

	// Config holds a pointer to the configuration that the flags are bound to. Optional.
	Config Config
	// Section is the name of Config in /configz, upstream's name if there is one. An empty section is not
	// shown.
	Section string

	// New returns the controller. It registers handlers with the caches, which are started later, and sends
	// no request.
	New func(Base) (Controller, error)
}

// Config holds the flags of a controller. /configz shows fields with a json tag.
type Config interface {
	// AddFlags adds the flags. The present values of the fields are the defaults.
	AddFlags(*pflag.FlagSet)
	// Validate returns all problems, each with the name of the flag.
	Validate() []error
}

// Controller is a control loop.
type Controller interface {
	// Run works for one term: it enqueues every key, and blocks until ctx is cancelled and all its
	// goroutines have returned. The next term calls Run again. A non-nil error stops the process; errors of
	// single objects are retried and never returned.
	Run(ctx context.Context) error
	// Healthy returns an error while work is stuck. It may be called at any time.
	Healthy() error
}

// Base holds the dependencies passed to every controller.
type Base struct {
	Client kubernetes.Interface // fenced: rejects writes without the lease
	REST   *rest.Config         // configuration of Client; copy it before a change
	Caches *caches.Caches
	// Recorder returns an event recorder with the given source.
	Recorder func(component string) record.EventRecorder
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
	// Drain is the time that running syncs have after the end of a term; see [LoopConfig].
	Drain time.Duration
	// Enabled reports whether a feature gate is enabled.
	Enabled func(featuregate.Feature) bool
}

// PodWorkers is the number of workers of loops that delete many pods at a time, as when a zone fails. More
// requests in flight do not make a small API server faster.
const PodWorkers = 32

// Access is a set of permissions on a resource or a non-resource path.
type Access struct {
	Group       string
	Resource    string // subresource after a slash
	Namespace   string // empty means all namespaces
	Name        string // empty means any name
	NonResource string // path; excludes the fields above
	Verbs       []string
	Impact      string // effect of a missing permission, as the predicate of a sentence about the controller
	Optional    bool   // a missing permission is logged and does not prevent the start
}
