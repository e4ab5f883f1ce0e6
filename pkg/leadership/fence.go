package leadership

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// Fence is the transport under every client that writes for a controller: set rest.Config.Wrap(fence.Wrap) and
// rest.Config.Dial = fence.Dial on their configs. The clients of informers, events, reviews and of the lease itself do not pass it.
//
// A mutating request (POST, PUT, PATCH, DELETE) is sent only inside a term, with a deadline: its context
// ends, and its "timeout" query parameter makes the server end it too, before another process could hold
// the lease. A request of an ended term, reads included, is refused; a hard end also cuts those in flight.
// A deadline that passes in flight is a *TimeoutError: like any timeout, the outcome is unknown.
//
// A write whose outcome is unknown outlives its request: the API server may still do it until the deadline it was
// given. The fence remembers that moment, and the Elector neither releases the lease nor leads anew before it.
//
// What belongs to a term is told by the context Lead was given. A request without it belongs to the term
// that runs when it is sent, or, if it reads and none runs, to nobody and passes.
//
// Safe for concurrent use. A new Fence is closed.
type Fence struct {
	clock   clock.Clock
	metrics *Metrics
	dialer  *connrotation.Dialer

	lock        sync.Mutex
	term        fenceTerm
	flights     map[*flight]struct{} // of the running term and of earlier ones that were closed
	idle        chan struct{}        // closed when flights gets empty; nil if nobody waits
	lastUnknown time.Time            // first moment at which no write of unknown outcome can be done any more
	slowUntil   time.Time            // until then writes count as slow; see slow
}

// NewFence returns a closed fence.
func NewFence(clk clock.Clock, m *Metrics) *Fence {
	return &Fence{clock: clk, metrics: m, dialer: connrotation.NewDialer(dialResettable), term: fenceTerm{closedReason: "no term has begun"}, flights: map[*flight]struct{}{}}
}

// Wrap puts the fence around rt. It fits rest.Config.Wrap.
func (f *Fence) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &fencedTransport{fence: f, next: rt}
}

// Dial opens a connection that is reset at the end of the term: a cancelled write may still lie in a send buffer, and would reach the
// API server once a broken network heals. It fits rest.Config.Dial.
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

// deadline is the first moment at which the running term may not write any more, false if it has none or no term runs.
func (f *Fence) termDeadline() (until time.Time, limited bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.term.limits.until, f.term.open && f.term.limits.isLimited()
}

// settled is the first moment at which nothing that was sent so far can be done any more, as far as is known now: a write in flight
// may still be answered and then counts no longer. It lies in the past if there is nothing to wait for. Writes that were given no
// deadline do not count: nobody else can lead.
func (f *Fence) unknownUntil() time.Time {
	f.lock.Lock()
	defer f.lock.Unlock()
	at := f.lastUnknown
	for fl := range f.flights {
		if fl.limits.isLimited() {
			at = timing.Later(at, fl.completedBy())
		}
	}
	return at
}

// slow reports whether a write has been in flight for half of what the short lease gives one, now or within patienceHold.
func (f *Fence) hasSlowWrites() bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	now := f.clock.Now()
	for fl := range f.flights {
		f.recordSlow(fl, now)
	}
	return now.Before(f.slowUntil)
}

// noteSlow judges a write that is, or just was, in flight. The lock is held.
func (f *Fence) recordSlow(fl *flight, now time.Time) {
	if fl.limits.isLimited() && !fl.dialing && now.Sub(fl.sentAt) >= fl.limits.slowAfter {
		f.slowUntil = timing.Later(f.slowUntil, now.Add(extendedFor))
	}
}

// inFlight counts the requests of terms that were sent and not yet answered in full.
func (f *Fence) inFlight() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.flights)
}

// tenure is a term as the fence sees it.
type fenceTerm struct {
	number       uint64
	open         bool
	limits       writeLimits
	closedReason string        // not open: why not
	ending       chan struct{} // closed when it has begun to end
}

// admission is the answer to one request.
type admission struct {
	refused string        // why not; empty: go
	term    uint64        // term it counts for, 0: none
	left    time.Duration // it must be over by then; 0: no limit
}

// admit decides about one request. carried is the term its context belongs to, 0 if none.
func (t fenceTerm) admit(carried uint64, mutating bool, now time.Time) admission {
	switch {
	case carried != 0 && carried != t.number:
		return admission{refused: "its term is over", term: carried}
	case !t.open && (mutating || carried != 0):
		return admission{refused: t.closedReason, term: carried}
	case !t.open:
		return admission{}
	case !mutating || !t.limits.isLimited():
		return admission{term: t.number}
	case !now.Before(t.limits.until):
		return admission{refused: notRenewed, term: t.number}
	}
	return admission{term: t.number, left: min(t.limits.until.Sub(now), t.limits.maxDuration)}
}

// open begins a term. allowed is what its writes are, zero if they have no limits.
func (f *Fence) openTerm(number uint64, allowed writeLimits) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.term = fenceTerm{number: number, open: true, limits: allowed, ending: make(chan struct{})}
}

// extend gives the writes of the running term more time, never less: answers to renewals may come in another order.
func (f *Fence) extendDeadline(allowed writeLimits) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.term.open && allowed.until.After(f.term.limits.until) {
		f.term.limits = allowed
	}
}

// shorten gives the writes that the running term sends from now on less time. Those in flight keep what they have.
func (f *Fence) shortenDeadline(allowed writeLimits) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.term.open && allowed.until.Before(f.term.limits.until) {
		f.term.limits = allowed
	}
}

// drain begins the end of the running term. Requests are still sent, so that syncs can finish. Reads in flight are abandoned: a slow
// one would hold up the next leader.
func (f *Fence) startDrain() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.term.signalEnding()
	for fl := range f.flights {
		if !isMutating(fl.method) {
			fl.cancelRequest("its term is over")
		}
	}
}

// end is called with the lock held.
func (t fenceTerm) signalEnding() {
	if t.ending != nil && !isClosed(t.ending) {
		close(t.ending)
	}
}

// close ends the running term when its work is done: nothing more is sent. Connections are aborted, for a request that was given up
// during the term may still lie in one.
func (f *Fence) closeTerm(why string) {
	f.lock.Lock()
	f.endTerm(why)
	f.lock.Unlock()
	f.dialer.CloseAll()
}

// end ends the running term hard and cuts what is in flight. It does nothing about a term that is over
// except to cut what that left in flight. It returns how many requests it cut.
func (f *Fence) abortTerm(why string) int {
	defer f.dialer.CloseAll() // after the cuts, which are why the requests end
	f.lock.Lock()
	defer f.lock.Unlock()
	f.endTerm(why)
	for fl := range f.flights {
		fl.cancelCounted(why)
	}
	return len(f.flights)
}

// shut ends the running term. The lock is held.
func (f *Fence) endTerm(why string) {
	f.term.signalEnding()
	if f.term.open {
		f.term.open, f.term.closedReason = false, why
	}
}

// idleNow returns a channel that is closed when no request of a term is in flight.
func (f *Fence) idleChannel() <-chan struct{} {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.signalIdle()
	return idle
}

// tellIdle closes the channel somebody may wait on if nothing is in flight. The lock is held.
func (f *Fence) signalIdle() {
	if len(f.flights) == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// start admits req and gives the request to send in its place, or refuses it with a *FencedError.
func (f *Fence) startRequest(req *http.Request) (*http.Request, *flight, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	a := f.term.admit(termOf(req.Context()), isMutating(req.Method), f.clock.Now())
	if a.refused != "" {
		f.metrics.refusals.WithLabelValues(req.Method).Inc()
		return nil, nil, &FencedError{Method: req.Method, Path: req.URL.Path, Term: a.term, Reason: a.refused}
	}
	if a.term == 0 {
		return req, nil, nil
	}
	fl := &flight{fence: f, method: req.Method, path: req.URL.Path, term: a.term, ending: f.term.ending, sentAt: f.clock.Now()}
	if a.left > 0 {
		fl.limits = f.term.limits
	}
	req = fl.prepareRequest(req, a.left)
	f.flights[fl] = struct{}{}
	return req, fl, nil
}

// landed takes a request out of the count. known says whether its outcome is.
func (f *Fence) finishRequest(fl *flight, known bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.recordSlow(fl, f.clock.Now())
	if known && isMutating(fl.method) {
		f.metrics.unanswered.Set(0)
	}
	if !known && !fl.dialing && isMutating(fl.method) {
		f.metrics.unanswered.Inc()
		if fl.limits.isLimited() {
			f.lastUnknown = timing.Later(f.lastUnknown, fl.completedBy())
		}
	}
	delete(f.flights, fl)
	f.signalIdle()
}

// mutates says whether a request with this method may change something.
func isMutating(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

type termKey struct{}

// withTerm marks ctx, and what is derived from it, as belonging to a term.
func withTerm(ctx context.Context, number uint64) context.Context {
	return context.WithValue(ctx, termKey{}, number)
}

// termOf returns the term ctx belongs to, 0 if none.
func termOf(ctx context.Context) uint64 {
	number, _ := ctx.Value(termKey{}).(uint64)
	return number
}
