package leadership

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// Fence is the transport of every client that writes for a controller: set
// rest.Config.Wrap(fence.Wrap) and rest.Config.Dial = fence.Dial. The clients of informers, events,
// reviews and of the Lease do not use the fence.
//
// A mutating request (POST, PUT, PATCH, DELETE) is sent only within a term and with a deadline: its
// context ends, and its "timeout" query parameter makes the server end the request, before another
// process could hold the lease. Requests of an ended term, reads included, are rejected. A lost
// lease or a drain that times out cancels requests in flight. A write that exceeds its deadline fails
// with a *TimeoutError.
//
// The API server may still execute a write with an unknown outcome until the deadline of the write.
// The fence records that moment, and the Elector neither releases the lease nor begins another term
// before.
//
// A request belongs to the term of its context; see Lead. A request without a term belongs to the
// running term. Without a running term, reads pass and writes are rejected.
//
// The clock of a paused virtual machine stops with the machine. After such a pause, and for bytes that
// had left the machine before, only preconditions (UID, resourceVersion, fixed names) protect against
// writes that arrive too late.
//
// A Fence is safe for concurrent use. A new Fence is closed.
type Fence struct {
	clock   clock.Clock
	metrics *Metrics
	dialer  *connrotation.Dialer
	idle    chan struct{} // of size one: flights may be empty

	lock        sync.Mutex
	term        fenceTerm
	flights     map[*flight]struct{} // of the running term and of earlier terms
	lastUnknown time.Time            // first moment at which no finished write has an unknown outcome
	slowUntil   time.Time            // end of the period in which writes count as slow
}

// NewFence returns a closed fence.
func NewFence(clk clock.Clock, m *Metrics) *Fence {
	return &Fence{clock: clk, metrics: m, dialer: connrotation.NewDialer(dialResettable), idle: make(chan struct{}, 1),
		term: fenceTerm{closedReason: "no term has begun", signalEnding: func() {}}, flights: map[*flight]struct{}{}}
}

// Wrap puts the fence around rt. It fits rest.Config.Wrap.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &fencedTransport{fence: f, next: rt}
}

// Dial opens a connection that is reset at the end of the term: a cancelled write may still lie in a
// send buffer, and would reach the API server once a broken network heals. Dial fits rest.Config.Dial.
func (f *Fence) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return f.dialer.DialContext(ctx, network, address)
}

// dialResettable opens a connection whose Close drops the bytes that the peer has not acknowledged.
func dialResettable(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // client-go's own
	conn, err := dialer.DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return conn, err
}

// unknownUntil returns the first moment at which no write sent so far can be executed. A write in
// flight counts until its response is complete. The moment is in the past if all outcomes are known.
// Writes without a deadline do not count: no other process can lead.
func (f *Fence) unknownUntil() time.Time {
	f.lock.Lock()
	defer f.lock.Unlock()
	until := f.lastUnknown
	for fl := range f.flights {
		if fl.limits.isLimited() {
			until = timing.Later(until, fl.completedBy())
		}
	}
	return until
}

// hasSlowWrites reports whether a write has been in flight for longer than slowAfter, now or within
// the last extendedFor.
func (f *Fence) hasSlowWrites() bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	now := f.clock.Now()
	for fl := range f.flights {
		f.recordSlowLocked(fl, now)
	}
	return now.Before(f.slowUntil)
}

func (f *Fence) recordSlowLocked(fl *flight, now time.Time) {
	if fl.limits.isLimited() && !fl.dialing && now.Sub(fl.sentAt) >= fl.limits.slowAfter {
		f.slowUntil = timing.Later(f.slowUntil, now.Add(extendedFor))
	}
}

// inFlight returns the number of requests of terms without a complete response.
func (f *Fence) inFlight() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.flights)
}

// fenceTerm is the state of a term in the fence.
type fenceTerm struct {
	number       uint64
	open         bool
	limits       writeLimits
	closedReason string
	ending       <-chan struct{} // closed when the term begins to end
	signalEnding func()
}

// requestDecision is the decision on a request.
type requestDecision struct {
	rejected string        // reason; "" if the request is admitted
	term     uint64        // 0: the request belongs to no term and needs no accounting
	left     time.Duration // until the deadline of the request; 0 for no deadline
}

// decideRequest decides on a request. carried is the term of the context, 0 for none.
func (t fenceTerm) decideRequest(carried uint64, mutating bool, now time.Time) requestDecision {
	switch {
	case carried != 0 && carried != t.number:
		return requestDecision{rejected: termOver, term: carried}
	case !t.open && (mutating || carried != 0):
		return requestDecision{rejected: t.closedReason, term: carried}
	case !t.open:
		return requestDecision{}
	case !mutating || !t.limits.isLimited():
		return requestDecision{term: t.number}
	case !now.Before(t.limits.until):
		return requestDecision{rejected: notRenewed, term: t.number}
	}
	return requestDecision{term: t.number, left: min(t.limits.until.Sub(now), t.limits.maxDuration)}
}

func (f *Fence) openTerm(number uint64, limits writeLimits) {
	f.lock.Lock()
	defer f.lock.Unlock()
	ending, signalEnding := context.WithCancel(context.Background())
	f.term = fenceTerm{number: number, open: true, limits: limits, ending: ending.Done(), signalEnding: signalEnding}
}

// setLimits changes the limits of later requests of the running term. Requests in flight keep their
// deadlines.
func (f *Fence) setLimits(limits writeLimits) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.term.open {
		f.term.limits = limits
	}
}

// startDrain begins the end of the running term. Requests are still sent, so that syncs can finish.
// Reads in flight are cancelled: a slow read would delay the next leader.
func (f *Fence) startDrain() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.term.signalEnding()
	for fl := range f.flights {
		if !isMutating(fl.method) {
			fl.cancelRequest(termOver)
		}
	}
}

// closeTerm ends the running term after the controllers have returned: no further request is sent.
// Connections of requests in flight are reset.
func (f *Fence) closeTerm() {
	f.lock.Lock()
	f.endTermLocked(termOver)
	f.lock.Unlock()
	f.dialer.CloseAll()
}

// abortTerm ends the running term, if there is one, and cancels all requests in flight. It returns the
// number of these requests.
func (f *Fence) abortTerm(reason string) int {
	defer f.dialer.CloseAll() // after the cancellations, so that requests fail with the reason
	f.lock.Lock()
	defer f.lock.Unlock()
	f.endTermLocked(reason)
	for fl := range f.flights {
		if !fl.cancelled {
			fl.cancelled = true
			f.metrics.cuts.WithLabelValues(fl.method).Inc()
		}
		fl.cancelRequest(reason)
	}
	return len(f.flights)
}

func (f *Fence) endTermLocked(reason string) {
	f.term.signalEnding()
	if f.term.open {
		f.term.open, f.term.closedReason = false, reason
	}
}

// startRequest returns the request to send in place of req, or a *FencedError. The flight is nil for a
// request without a term.
func (f *Fence) startRequest(req *http.Request) (*http.Request, *flight, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	now := f.clock.Now()
	decision := f.term.decideRequest(termOf(req.Context()), isMutating(req.Method), now)
	if decision.rejected != "" {
		f.metrics.refusals.WithLabelValues(req.Method).Inc()
		return nil, nil, &FencedError{Method: req.Method, Path: req.URL.Path, Reason: decision.rejected}
	}
	if decision.term == 0 {
		return req, nil, nil
	}
	fl := &flight{fence: f, method: req.Method, path: req.URL.Path, ending: f.term.ending, sentAt: now}
	if decision.left > 0 {
		fl.limits = f.term.limits
	}
	req = fl.prepareRequest(req, decision.left)
	f.flights[fl] = struct{}{}
	return req, fl, nil
}

func (f *Fence) finishRequest(fl *flight, outcomeKnown bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.recordSlowLocked(fl, f.clock.Now())
	if outcomeKnown && isMutating(fl.method) {
		f.metrics.unknownWrites.Set(0)
	}
	if !outcomeKnown && !fl.dialing && isMutating(fl.method) {
		f.metrics.unknownWrites.Inc()
		if fl.limits.isLimited() {
			f.lastUnknown = timing.Later(f.lastUnknown, fl.completedBy())
		}
	}
	if delete(f.flights, fl); len(f.flights) == 0 {
		timing.Signal(f.idle)
	}
}

func isMutating(method string) bool {
	return slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, method)
}

type termKey struct{}

// withTerm marks ctx, and every context derived from ctx, as part of a term.
func withTerm(ctx context.Context, number uint64) context.Context {
	return context.WithValue(ctx, termKey{}, number)
}

// termOf returns the term of ctx, 0 for none.
func termOf(ctx context.Context) uint64 {
	number, _ := ctx.Value(termKey{}).(uint64)
	return number
}
