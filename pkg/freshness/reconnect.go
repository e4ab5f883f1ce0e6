package freshness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// reconnectPause is the pause between attempts to connect of one client. Reflectors would wait up to 30 s, and notice the return of the API server that much later.
const reconnectPause = 750 * time.Millisecond

// turnFor is how long one request of a client may keep the others from connecting.
const turnFor = time.Second

// A watch is repeated after a 5xx answer, with a pause that doubles, for as long as it may take to replace an API server.
// After that the reflector gets the answer, and lists.
const (
	longestPause  = 3 * time.Second
	errorPatience = 2 * time.Minute
)

// retriesPerSecond bounds the retries of all watches after 5xx answers. 350 watches are retried within 5 s.
const retriesPerSecond = 80

// pauseJitter spreads the requests that failed together.
const pauseJitter = 0.25

// shortestWatch is how old a watch is at least when it ends. One that ended sooner, and brought nothing, reflectors answer with a new list
// of everything, and with a pause that they double each time. For the stream of a list they begin to count when that is complete.
const shortestWatch = 1250 * time.Millisecond // client-go v0.37 (VeryShortWatchError): 1 s, and a little for storing what was listed

// reconnecting makes round trippers for the informers' clients, to be placed outside of authentication. They hold a request until a
// connection can be made, and a watch until the API server answers it with something other than 5xx, for at most errorPatience.
// To a reflector an API server that is away then looks like a slow API server: nothing fails, backs off or lists again. A network
// that keeps breaking connections looks like watches that end, at most once a second, and are resumed.
//
// The requests of one client connect in turn: while the API server is away one of them probes, and the others share its connection.
type reconnecting struct {
	clock   clock.Clock
	retries *rate.Limiter // after 5xx answers
	away    atomic.Bool   // one log line for all streams when the API server goes, and one when it is back
}

func newReconnecting(clk clock.Clock) *reconnecting {
	return &reconnecting{clock: clk, retries: rate.NewLimiter(retriesPerSecond, 1)}
}

func (r *reconnecting) wrap(next http.RoundTripper) http.RoundTripper {
	turn := semaphore.NewWeighted(1)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet {
			return r.roundTrip(next, turn, req)
		}
		return next.RoundTrip(req)
	})
}

func (r *reconnecting) roundTrip(next http.RoundTripper, turn *semaphore.Weighted, req *http.Request) (*http.Response, error) {
	var err error
	logger := klog.FromContext(req.Context())
	fails := r.clock.Now() // since then all answers were 5xx
	for pause := reconnectPause; ; pause = min(2*pause, longestPause) {
		if turn.Acquire(req.Context(), 1) != nil {
			return nil, cmp.Or(err, req.Context().Err())
		}
		leave := sync.OnceFunc(func() { turn.Release(1) })
		time.AfterFunc(turnFor, leave)
		asked := r.clock.Now()
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { leave() }}
		var resp *http.Response
		if resp, err = next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace))); err == nil {
			leave()
		}
		var reason string
		if !failing(resp) {
			fails = asked
		}
		switch {
		case neverConnected(err):
			reason, pause = err.Error(), reconnectPause
		case resumes(req.URL) && broken(err):
			reason = err.Error()
		case watches(req.URL) && failing(resp) && !saysTooLarge(resp) && asked.Sub(fails) < errorPatience:
			reason = resp.Status
			_ = resp.Body.Close()
		default:
			leave()
			if err == nil && !failing(resp) && r.away.CompareAndSwap(true, false) {
				logger.Info("API server is back, watches are resumed", "server", req.URL.Host)
			}
			return lasting(resp, req, asked, r.clock), err
		}
		if neverConnected(err) && r.away.CompareAndSwap(false, true) {
			logger.Info("API server cannot be reached, caches are kept", "server", req.URL.Host, "reason", reason)
		}
		timing.Sleep(req.Context(), r.clock, wait.Jitter(pause, pauseJitter))
		leave()
		if failing(resp) {
			_ = r.retries.Wait(req.Context()) // a request that has ended gets no turn
		}
	}
}

// failing reports whether a server answered that it cannot do its work now: 5xx. A server that cannot stream lists answers 422, which does not count.
func failing(resp *http.Response) bool {
	return resp != nil && resp.StatusCode >= http.StatusInternalServerError
}

// saysTooLarge reports whether an answer is about the version that was asked for, which the API server does not have yet, or not any more.
// A reflector then asks without one.
func saysTooLarge(resp *http.Response) bool {
	if resp.StatusCode != http.StatusGatewayTimeout {
		return false
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10)) // what is broken off says nothing
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return bytes.Contains(head, []byte(metav1.CauseTypeResourceVersionTooLarge))
}

// neverConnected reports whether a request failed before anything of it was sent.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// broken reports whether a request failed because its connection did, or was cut by those who watch over the watches.
func broken(err error) bool {
	return err != nil && (utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || errors.Is(err, context.Canceled))
}

// watches reports whether a URL asks for a watch.
func watches(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "true" || w == "1"
}

// resumes reports whether a URL asks for a watch from a version on, which costs the API server next to nothing. Lists do cost: if one
// breaks the connection, it is the reflector's to wait before the next.
func resumes(u *url.URL) bool {
	version := u.Query().Get("resourceVersion")
	return watches(u) && version != "" && version != "0" && u.Query().Get("sendInitialEvents") != "true"
}

// lasting makes the stream of a watch end neither early nor with an error: then its reflector goes on from the version it has reached.
func lasting(resp *http.Response, req *http.Request, asked time.Time, clk clock.Clock) *http.Response {
	if resp == nil || resp.StatusCode != http.StatusOK || req.Method != http.MethodGet || !watches(req.URL) {
		return resp
	}
	resp.Body = &lastingBody{ReadCloser: resp.Body, ctx: req.Context(), clock: clk, lists: !resumes(req.URL),
		until: asked.Add(shortestWatch), closed: make(chan struct{})}
	return resp
}

type lastingBody struct {
	io.ReadCloser
	ctx    context.Context // of the request; Read has none
	clock  clock.Clock
	lists  bool      // it begins with a list, and where that ends only the reader knows
	until  time.Time // it does not end before
	once   sync.Once
	closed chan struct{}
}

// Read implements io.Reader.
func (b *lastingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.lists {
		b.until = b.clock.Now().Add(shortestWatch)
	}
	switch {
	case err == nil || b.ctx.Err() != nil:
		return n, err
	case n > 0:
		return n, nil // the next Read fails again
	}
	select {
	case <-b.clock.After(b.until.Sub(b.clock.Now())):
		return 0, io.EOF
	case <-b.closed:
	case <-b.ctx.Done():
	}
	return 0, err
}

// Close implements io.Closer.
func (b *lastingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
