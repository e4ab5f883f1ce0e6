package leadership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"time"

	"minikcm/internal/hooks"
	"minikcm/pkg/outcome"
)

// ErrFenced is in every error of a request the fence refused or cut.
var ErrFenced = errors.New("not leading")

// FencedError tells of a request that was not allowed to finish because its term is over. It satisfies
// errors.Is with ErrFenced and with context.Canceled.
type FencedError struct {
	Method string
	Path   string
	Term   uint64 // number of the term the request belonged to, 0 if none
	Sent   bool   // false: refused, the server never saw it; true: cut in flight, the outcome is unknown
	Reason string
}

// Error implements error.
func (e *FencedError) Error() string {
	done := "refused"
	if e.Sent {
		done = "cut"
	}
	return fmt.Sprintf("%v: %s %s was %s: %s", ErrFenced, e.Method, e.Path, done, e.Reason)
}

// Unwrap makes errors.Is true for what the error stands for.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, context.Canceled} }

// TimeoutError tells of a write that was not answered in the time a write has; whether it was done is unknown. It satisfies errors.Is
// with context.DeadlineExceeded.
type TimeoutError struct {
	Method string
	Path   string
	Most   time.Duration // what a write has at most, as the lease was when it was sent
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s %s: no answer in the %v that a write has", e.Method, e.Path, e.Most)
}

// Unwrap makes errors.Is true for what the error stands for.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Timeout says that this is one, as net.Error does.
func (e *TimeoutError) Timeout() bool { return true }

// WriteTimeout is Most, for those who know nothing of leases.
func (e *TimeoutError) WriteTimeout() time.Duration { return e.Most }

// fencedTransport passes what the fence admits.
type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	admitted, fl, err := t.fence.startRequest(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper closes the body whatever happens
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(admitted)
	if fl == nil {
		return resp, err
	}
	if err != nil {
		err = fl.explainError(admitted.Context(), err)
		fl.complete(false)
		return nil, err
	}
	explain := func(err error) error { return fl.explainError(admitted.Context(), err) }
	land := func(said []byte) {
		fl.complete(outcome.Complete(resp.StatusCode) || outcome.WebhookFailed(string(said)))
	}
	resp.Body = &flightBody{ReadCloser: resp.Body, explain: explain, land: land}
	if wait := retryAfter(resp); wait > 0 {
		if err := fl.waitRetryAfter(req.Context(), resp, wait); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// longestWait is for how long an answer can have a request wait: kube-apiserver v1.37 asks for no more, a webhook or a load balancer may. Each try is a sign of life
// of its sync, which would count as stuck without one.
const maxRetryAfter = 32 * time.Second

// asksToWait is for how long client-go would sleep after an answer before it sends the request once more, but longestWait at most.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// heed waits as long as an answer asks to, in place of client-go, whose sleep would go on after the end of the term and hold up the hand-over though nothing is
// in flight. After the wait client-go sends the request again at once. If the term or ctx ends before that, the answer goes to the caller without its
// Retry-After, so that client-go does not repeat the request.
func (fl *flight) waitRetryAfter(ctx context.Context, resp *http.Response, wait time.Duration) error {
	said, err := io.ReadAll(resp.Body)
	resp.Body.Close() // it has landed
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(said))
	timer := fl.fence.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		resp.Header.Set("Retry-After", "0")
	case <-fl.ending:
		resp.Header.Del("Retry-After")
	case <-ctx.Done():
		resp.Header.Del("Retry-After")
	}
	return nil
}

// flight is a request of a term from its sending to the end of its answer.
type flight struct {
	fence        *Fence
	method, path string
	term         uint64
	ending       <-chan struct{} // closed when its term has begun to end
	limits       writeLimits     // zero for reads, and for writes without limits
	deadline     time.Time       // when it is over on both sides; meaningful if allowed is limited

	// The lock of the fence guards these.
	sentAt    time.Time // when it was sent, as far as is known
	dialing   bool      // for its first connection, so nothing was sent
	connected bool      // a connection
	cancelled bool

	cancel    context.CancelCauseFunc // cuts it
	stopTimer context.CancelFunc      // frees the timer of its deadline
	once      sync.Once
}

// settled is when a write cannot be done any more, if its answer does not come: at the end of the time the server has for it, and of
// the margin that is kept towards other processes as well.
func (fl *flight) completedBy() time.Time { return fl.deadline.Add(fl.limits.margin) }

// prepare derives the request to send: one that can be cut, and that ends on both sides within left.
func (fl *flight) prepareRequest(req *http.Request, left time.Duration) *http.Request {
	ctx, stop := context.WithCancelCause(req.Context())
	fl.cancel, fl.stopTimer = stop, func() {}
	if !isMutating(fl.method) {
		return req.WithContext(ctx)
	}
	target, asked := *req.URL, req.URL.Query()
	if left > 0 {
		fl.deadline = fl.sentAt.Add(left)
		ctx, fl.stopTimer = context.WithTimeout(ctx, left)
		target.RawQuery = limitTimeout(asked, left).Encode()
	}
	getConn := func(string) { fl.waitsForConnection() }
	gotConn := func(httptrace.GotConnInfo) {
		fl.hasConnection()
		if left > 0 { // dialling took some of it; what the server is given counts from now, and nobody has read the URL yet
			target.RawQuery = limitTimeout(asked, fl.deadline.Sub(fl.fence.clock.Now())).Encode()
		}
	}
	req = req.WithContext(hooks.WithConnections(ctx, getConn, gotConn))
	req.URL = &target
	return req
}

// waitsForConnection notes that nothing was sent, unless there was a connection before and the transport tries another one.
func (fl *flight) waitsForConnection() {
	fl.fence.lock.Lock()
	defer fl.fence.lock.Unlock()
	fl.dialing = !fl.connected
}

// hasConnection notes that the request may be on its way from now on.
func (fl *flight) hasConnection() {
	fl.fence.lock.Lock()
	defer fl.fence.lock.Unlock()
	if !fl.connected {
		fl.dialing, fl.connected, fl.sentAt = false, true, fl.fence.clock.Now()
	}
}

// limitTimeout gives query a "timeout" of at most left. The server takes any Go duration, ignores one of
// zero or above its own maximum, and refuses what it cannot parse (kube-apiserver v1.37: parseTimeout); so
// a shorter one and a malformed one stay as they are.
func limitTimeout(query url.Values, left time.Duration) url.Values {
	asked := query.Get("timeout")
	if d, err := time.ParseDuration(asked); asked == "" || err == nil && (d <= 0 || d > left) {
		query.Set("timeout", max(left.Truncate(time.Millisecond), time.Millisecond).String())
	}
	return query
}

// cut abandons a request because its term has ended hard.
func (fl *flight) cancelCounted(why string) {
	if !fl.cancelled {
		fl.cancelled = true
		fl.fence.metrics.cuts.WithLabelValues(fl.method).Inc()
	}
	fl.cancelRequest(why)
}

// abandon ends the request here. Whether the server still carries it out is unknown.
func (fl *flight) cancelRequest(why string) {
	fl.cancel(&FencedError{Method: fl.method, Path: fl.path, Term: fl.term, Sent: true, Reason: why})
}

// land ends the accounting. known says whether the outcome is. It may be called again.
func (fl *flight) complete(known bool) {
	fl.once.Do(func() {
		fl.stopTimer()
		fl.cancel(nil)
		fl.fence.finishRequest(fl, known)
	})
}

// explain turns the transport's error into the reason the request ended, if that was ours.
func (fl *flight) explainError(ctx context.Context, err error) error {
	var fenced *FencedError
	cause := context.Cause(ctx)
	switch {
	case errors.As(cause, &fenced):
		return fenced
	case !errors.Is(cause, context.DeadlineExceeded):
		return err
	case fl.limits.isLimited() && !fl.fence.clock.Now().Before(fl.deadline):
		return &TimeoutError{Method: fl.method, Path: fl.path, Most: fl.limits.maxDuration}
	case !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// flightBody counts the request as in flight until its answer is read or given up. A watch is closed while it is read.
type flightBody struct {
	io.ReadCloser
	explain func(error) error
	land    func(said []byte)

	lock sync.Mutex
	head []byte // the beginning of the answer
}

// saidMost bounds what is kept of an answer. That of an error is short.
const maxHead = 512

// Read implements io.Reader.
func (b *flightBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.lock.Lock()
	b.head = append(b.head, p[:min(n, maxHead-len(b.head))]...)
	b.lock.Unlock()
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *flightBody) Close() error {
	err := b.ReadCloser.Close()
	b.lock.Lock()
	said := b.head
	b.lock.Unlock()
	b.land(said)
	return err
}
