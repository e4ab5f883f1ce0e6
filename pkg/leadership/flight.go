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

	"k8s.io/apimachinery/pkg/util/wait"

	"minikcm/internal/hooks"
	"minikcm/pkg/outcome"
)

// ErrFenced is in every error of a request that the fence rejected or cancelled.
var ErrFenced = errors.New("not leading")

// FencedError is the error of a request whose term is over. It satisfies errors.Is with ErrFenced and
// with context.Canceled.
type FencedError struct {
	Method string
	Path   string
	Sent   bool // true: cancelled in flight; false: rejected
	Reason string
}

// Error implements error.
func (e *FencedError) Error() string {
	done := "rejected"
	if e.Sent {
		done = "cancelled"
	}
	return fmt.Sprintf("%v: %s %s was %s: %s", ErrFenced, e.Method, e.Path, done, e.Reason)
}

// Unwrap serves errors.Is.
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, context.Canceled} }

// TimeoutError is the error of a write without a response before its deadline. The outcome of the write is
// unknown. The error satisfies errors.Is with context.DeadlineExceeded.
type TimeoutError struct {
	Method string
	Path   string
	Limit  time.Duration // time limit of a write under the lease at the time of the request
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s %s: no response within the write timeout of %v", e.Method, e.Path, e.Limit)
}

// Unwrap serves errors.Is.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// WriteTimeout returns Limit, for packages that do not import this package.
func (e *TimeoutError) WriteTimeout() time.Duration { return e.Limit }

// fencedTransport sends the requests that the fence admits.
type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the TLS settings of next.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	admitted, fl, err := t.fence.startRequest(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper must close the body
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(admitted)
	if fl == nil {
		return resp, err
	}
	if err != nil {
		defer fl.complete(false)
		return nil, explainError(admitted.Context(), err)
	}
	explain := func(err error) error { return explainError(admitted.Context(), err) }
	resp.Body = &flightBody{ReadCloser: resp.Body, explain: explain, flight: fl, status: resp.StatusCode}
	if wait := retryAfter(resp); wait > 0 {
		if err := fl.waitRetryAfter(req.Context(), resp, wait); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// maxRetryAfter bounds Retry-After. kube-apiserver v1.37 never exceeds 32 s, but webhooks and load
// balancers may. A sync that waits for two minutes between two attempts counts as stuck.
const maxRetryAfter = 32 * time.Second

// retryAfter returns the time that client-go would sleep before it repeats the request, at most maxRetryAfter, plus
// up to a half: an overloaded API server returns the same time to all requests, and has to reject them again.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return 0
	}
	return wait.Jitter(min(time.Duration(seconds)*time.Second, maxRetryAfter), 0.5)
}

// waitRetryAfter waits in place of client-go, whose sleep would continue after the end of the term and
// delay the hand-over. After the wait client-go repeats the request at once. If the term or ctx ends
// before, the response loses its Retry-After, so that client-go returns.
func (fl *flight) waitRetryAfter(ctx context.Context, resp *http.Response, wait time.Duration) error {
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close() // completes the flight
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	timer := fl.fence.clock.NewTimer(wait)
	defer timer.Stop()
	resp.Header.Del("Retry-After")
	select {
	case <-timer.C():
		resp.Header.Set("Retry-After", "0")
	case <-fl.ending:
	case <-ctx.Done():
	}
	return nil
}

// flight is a request of a term from its start to the end of its response.
type flight struct {
	fence        *Fence
	method, path string
	ending       <-chan struct{} // closed when the term begins to end
	limits       writeLimits     // zero for reads and for writes without limits
	deadline     time.Time       // on both sides; zero without limits

	// The lock of the fence guards these fields.
	sentAt    time.Time // start of the request until there is a connection
	dialing   bool      // waiting for the first connection: no byte was sent
	connected bool
	cancelled bool // counted in leadership_fence_cuts_total

	cancel    context.CancelCauseFunc
	stopTimer context.CancelFunc
	once      sync.Once
}

// completedBy returns the first moment at which the API server cannot execute the write any more: its
// deadline and the margin.
func (fl *flight) completedBy() time.Time { return fl.deadline.Add(fl.limits.margin) }

// prepareRequest returns a copy of req that can be cancelled, and ends on both sides within left.
func (fl *flight) prepareRequest(req *http.Request, left time.Duration) *http.Request {
	ctx, cancel := context.WithCancelCause(req.Context())
	fl.cancel, fl.stopTimer = cancel, func() {}
	if !isMutating(fl.method) {
		return req.WithContext(ctx)
	}
	target, query := *req.URL, req.URL.Query()
	if left > 0 {
		fl.deadline = fl.sentAt.Add(left)
		ctx, fl.stopTimer = context.WithTimeoutCause(ctx, left, &TimeoutError{Method: fl.method, Path: fl.path, Limit: fl.limits.maxDuration})
		target.RawQuery = limitTimeout(query, left).Encode()
	}
	getConn := func(string) { fl.startDialing() }
	gotConn := func(httptrace.GotConnInfo) {
		fl.setConnected()
		if left > 0 { // the transport reads the URL after this hook; the server counts from the arrival
			target.RawQuery = limitTimeout(query, fl.deadline.Sub(fl.fence.clock.Now())).Encode()
		}
	}
	req = req.WithContext(hooks.WithConnections(ctx, getConn, gotConn))
	req.URL = &target
	return req
}

// startDialing has no effect if the transport replaces a broken connection: the request may have been
// sent.
func (fl *flight) startDialing() {
	fl.fence.lock.Lock()
	defer fl.fence.lock.Unlock()
	fl.dialing = !fl.connected
}

func (fl *flight) setConnected() {
	fl.fence.lock.Lock()
	defer fl.fence.lock.Unlock()
	if !fl.connected {
		fl.dialing, fl.connected, fl.sentAt = false, true, fl.fence.clock.Now()
	}
}

// limitTimeout sets the "timeout" of query to at most left. kube-apiserver v1.37 (parseTimeout)
// accepts any Go duration, ignores zero and durations above its maximum, and rejects malformed ones.
// Shorter and malformed timeouts stay unchanged.
func limitTimeout(query url.Values, left time.Duration) url.Values {
	timeout := query.Get("timeout")
	if d, err := time.ParseDuration(timeout); timeout == "" || err == nil && (d <= 0 || d > left) {
		query.Set("timeout", max(left.Truncate(time.Millisecond), time.Millisecond).String())
	}
	return query
}

// cancelRequest ends the request in this process. The API server may still execute the request.
func (fl *flight) cancelRequest(reason string) {
	fl.cancel(&FencedError{Method: fl.method, Path: fl.path, Sent: true, Reason: reason})
}

// complete ends the accounting of the request. Further calls have no effect.
func (fl *flight) complete(outcomeKnown bool) {
	fl.once.Do(func() {
		fl.stopTimer()
		fl.cancel(nil)
		fl.fence.finishRequest(fl, outcomeKnown)
	})
}

// explainError replaces the error of the transport by the cancellation or deadline of the fence that
// caused the error.
func explainError(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx).(type) {
	case *FencedError, *TimeoutError:
		return cause
	}
	return err
}

// flightBody completes its flight when it is closed. A watch is closed while another goroutine reads.
type flightBody struct {
	io.ReadCloser
	explain func(error) error
	flight  *flight
	status  int
	head    []byte // start of an incomplete response, for the goroutine that reads and closes the response
}

// maxHead bounds head. A Status of a failed webhook is shorter.
const maxHead = 512

// Read implements io.Reader.
func (b *flightBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !outcome.Complete(b.status) {
		b.head = append(b.head, p[:min(n, maxHead-len(b.head))]...)
	}
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *flightBody) Close() error {
	err := b.ReadCloser.Close()
	b.flight.complete(outcome.Complete(b.status) || outcome.WebhookFailed(string(b.head)))
	return err
}
