package app

import (
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"

	"minikcm/pkg/controller"
	"minikcm/pkg/leadership"
	"minikcm/pkg/serving"
)

// Name is the program's name on the command line, in user agents, and of the Lease by default.
const Name = "controller-manager"

// leasesLock is the only kind of lock there is.
const leasesLock = "leases"

// Config is what the manager works with. It is made by [Options.Config] or [DefaultConfig], and not changed afterwards; whoever needs a
// variation copies it.
type Config struct {
	// Controllers are the enabled ones, in start order. Empty is allowed: the process serves and takes the lease, and does nothing else.
	Controllers []controller.Registration
	// Sections are the configurations of all controllers, those that are not enabled too, as /configz shows them.
	Sections map[string]controller.Config
	// Needs are rights that the program around the manager takes beside those of the controllers: the manager does not start without them, either.
	Needs []controller.Access
	// Enabled reports whether a feature gate of a controller is on.
	Enabled func(featuregate.Feature) bool

	// REST reaches the API server as this process. Its user agent is the program's; each client appends its purpose
	// with rest.AddUserAgent. It is copied before it is changed. It has no Dial, and no Transport with Election or WatchLiveness: both need connections that
	// the manager can cut.
	REST *rest.Config

	// StartTimeout is how long the manager waits at its start for an API server that is not there, or not ready; 0: for ever. A TLS
	// handshake is given 10 s and a request 20 s even if that is longer.
	StartTimeout time.Duration

	// OwnProcess says that the process has no other purpose than this manager. The manager then uses the library metrics that exist once per process, and
	// returns memory to the operating system when its caches are filled; advice in its errors names the command's flags. Only package command sets it, and sets those metrics up.
	OwnProcess bool

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
	// WatchLiveness reopens watch streams that deliver nothing. A leader whose caches stay behind steps down.
	WatchLiveness bool

	// Serving says what the HTTPS endpoint offers.
	Serving serving.Config
}
