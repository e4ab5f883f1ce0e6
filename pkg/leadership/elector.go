package leadership

import (
	"context"
	"errors"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// ErrShutdownTimeout is in the error of Run when controllers were still working after the shutdown
// timeout. Their requests were cut and the lease was left to expire.
var ErrShutdownTimeout = errors.New("controllers did not stop within the shutdown timeout")

// Term is one uninterrupted holding of the lease.
type Term struct {
	Number uint64 // 1 for the first term of this process
	Cause  Cause
}

// Cause says how the lease became free for a term.
type Cause string

// The causes of a takeover.
const (
	CauseInitial    Cause = "initial"    // there was no lease, or election is off
	CauseReleased   Cause = "released"   // the holder gave it away
	CauseExpired    Cause = "expired"    // the holder let it expire
	CauseReacquired Cause = "reacquired" // it was still ours: a term ended and nobody else came
)

// Lead works for one term. ctx ends when the term does; it means drain: take no new work, finish what
// runs, join every goroutine, return. What must not finish is cut by the fence. A client request must
// carry ctx or a context derived from it (context.WithoutCancel included) to belong to the term.
//
// A non-nil error, or a return before ctx ends, stops the process: Run releases the lease and returns it.
type Lead func(ctx context.Context, term Term) error

// Deps are what an Elector works with. All are needed unless said otherwise.
type Deps struct {
	Clients Clients // see NewClients; not needed with election off
	Fence   *Fence
	Metrics *Metrics
	Clock   clock.WithTicker // nil: the real one

	// Recorder gets "became leader" before the first write of a term and "stopped leading" after the
	// last, before the release. nil: the events are written through Clients.Events, each waited for.
	Recorder resourcelock.EventRecorder
	// Flush is called between the end of the last controller and the release of the lease, for events
	// of controllers that still wait to be sent. ctx bounds it. May be nil.
	Flush func(ctx context.Context)
}

// Elector holds the lease for this process, one term after the other.
type Elector struct {
	cfg  Config
	deps Deps
}

// New returns an elector that does nothing before Run. The error lists every problem of cfg.
func New(cfg Config, deps Deps) (*Elector, error) {
	return &Elector{cfg: cfg, deps: deps}, nil
}

// Observe tells the elector what the shared Lease informer delivered about the Lease it competes for (other
// Leases are ignored): the object on add and update, nil on delete. It does not block for long, and may end
// the running term before it returns. May be called at any time, also before Run.
func (e *Elector) Observe(lease *coordinationv1.Lease) {}

// Run competes for the lease and calls lead once per term, never twice at a time, until ctx ends.
// See the package comment for what happens at the end of a term. It returns nil after a clean shutdown, an
// error with ErrShutdownTimeout if the drain took too long, or the error of lead. Call it once.
func (e *Elector) Run(ctx context.Context, lead Lead) error { return nil }

// StepDown makes a leader end its term, release the lease and, like a standby, stay out of the election
// until caughtUp returns true or the cool-down has passed. It returns at once. The caller decides that
// somebody else could do better. Without election it does nothing. A second call while out is ignored.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {}

// Name is the name of the health check, that of kube-controller-manager.
func (e *Elector) Name() string { return "leaderElection" }

// Check fails while this process believes it leads and its last renewal is older than the lease duration
// plus 20 s, or while controllers of a lost term have not returned for that long. A standby passes.
// It is part of liveness and never depends on the API server.
func (e *Elector) Check(*http.Request) error { return nil }

// Status is a snapshot for logs and for tests.
type Status struct {
	Leading      bool
	Term         Term          // the running or last term; zero before the first
	SinceRenewal time.Duration // since the last successful renewal was sent; 0 if not leading
	Holder       string        // last seen holder, "" if free or unknown
}

// Status says where the elector stands.
func (e *Elector) Status() Status { return Status{} }
