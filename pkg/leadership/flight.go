package leadership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
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

// fencedTransport passes what the fence admits.
type fencedTransport struct {
	fence *Fence
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	admitted, fl, err := t.fence.start(req)
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
		err = fl.explain(admitted.Context(), err)
		fl.land()
		return nil, err
	}
	explain := func(err error) error { return fl.explain(admitted.Context(), err) }
	resp.Body = &flightBody{ReadCloser: resp.Body, explain: explain, land: fl.land}
	return resp, nil
}

// flight is a request of a term from its sending to the end of its answer.
type flight struct {
	fence        *Fence
	method, path string
	term         uint64

	stop context.CancelCauseFunc // cuts it
	free context.CancelFunc      // frees the timer of its deadline
	once sync.Once
}

// prepare derives the request to send: one that can be cut, and that ends on both sides within left.
func (fl *flight) prepare(req *http.Request, left time.Duration) *http.Request {
	ctx, stop := context.WithCancelCause(req.Context())
	fl.stop, fl.free = stop, func() {}
	if left > 0 {
		ctx, fl.free = context.WithTimeout(ctx, left)
	}
	req = req.WithContext(ctx)
	if left > 0 {
		limited := *req.URL
		limited.RawQuery = limitTimeout(limited.Query(), left).Encode()
		req.URL = &limited
	}
	return req
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

// cut ends the request here; whether the server still does what it asks is unknown.
func (fl *flight) cut(why string) {
	fl.stop(&FencedError{Method: fl.method, Path: fl.path, Term: fl.term, Sent: true, Reason: why})
}

// land ends the accounting. It may be called again.
func (fl *flight) land() {
	fl.once.Do(func() {
		fl.free()
		fl.stop(nil)
		fl.fence.landed(fl)
	})
}

// explain turns the transport's error into the reason the request ended, if that was ours.
func (fl *flight) explain(ctx context.Context, err error) error {
	var fenced *FencedError
	cause := context.Cause(ctx)
	switch {
	case errors.As(cause, &fenced):
		return fenced
	case errors.Is(cause, context.DeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// flightBody counts the request as in flight until its answer is read or given up.
type flightBody struct {
	io.ReadCloser
	explain func(error) error
	land    func()
}

// Read implements io.Reader.
func (b *flightBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.explain(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *flightBody) Close() error {
	err := b.ReadCloser.Close()
	b.land()
	return err
}
