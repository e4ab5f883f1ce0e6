package freshness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

const (
	// reconnectPause is the pause between connection attempts of one client. Reflectors would wait up to 30 s.
	reconnectPause = 750 * time.Millisecond
	// connectTimeout is the longest time for which a request keeps other requests of the same client from connecting.
	connectTimeout = time.Second
	// maxErrorPause and errorTimeout bound the retries of a watch after 5xx responses. After that the
	// reflector gets the response, and lists.
	maxErrorPause = 3 * time.Second
	errorTimeout  = 2 * time.Minute
	// retriesPerSecond bounds the retries of all watches after 5xx responses. 350 watches are retried within 5 s.
	retriesPerSecond = 80
	// pauseJitter spreads requests that failed together.
	pauseJitter = 0.25
	// pageSize is the number of objects in a page of a plain list. A list in one response would be held
	// twice, encoded and decoded.
	pageSize = 2000
	// maxIncompleteStreams is the number of streaming lists of a type in a row that may end before the list
	// is complete, as behind a proxy that ends long responses.
	maxIncompleteStreams = 2
	// shortWatch is the duration of a watch that was reopened. The API server sends a bookmark 2 s before
	// the end of a watch, which shows that no event is missing, even behind a proxy that ends idle streams
	// before the bookmark of each minute.
	shortWatch = 6 * time.Second
)

// errNoStream replaces a streaming list. The reflector then sends a plain list at once. It repeats a streaming list
// only after 429, a refused connection, or a version that has expired or is too large.
var errNoStream = errors.New("streaming lists of this type stall or are cut")

// errExpired replaces the 410 Gone of a page that is not the first. After a 410 client-go lists once more and
// takes the response as complete (pager.FullListIfExpired). Transport would cut that response to one page, and
// the cache would lose all other objects. After any other error the reflector begins a new list in pages.
var errExpired = errors.New("the list expired while its pages were read")

// Transport connects informers with the API server. An informer sees an absent API server as a slow API
// server, without an error, a back-off or a new list:
//
//  1. A request is held until a connection can be made. A watch is held for two minutes while the API
//     server returns 5xx. The requests of one client connect in turn, so that one of them probes an API
//     server that is away.
//  2. The connection errors of a watch are turned into the end of the watch, which the reflector resumes.
//  3. A streaming list that stalls is cut. Its type is then listed in pages.
//  4. A watch without a byte for three minutes is reopened.
//
// Transport also records the last activity of each type over all requests, and reopens watches. Safe for
// concurrent use.
type Transport struct {
	clock       clock.Clock
	retries     *rate.Limiter
	unreachable atomic.Bool // the log shows the API server as unreachable

	lock       sync.Mutex
	activities map[watchTarget]activity
}

// NewTransport returns a transport without clients.
func NewTransport(clk clock.Clock) *Transport {
	return &Transport{clock: clk, retries: rate.NewLimiter(retriesPerSecond, 1), activities: map[watchTarget]activity{}}
}

// Client returns a copy of cfg and an HTTP client with connections of its own. The transport wraps
// authentication: a request that was held carries the credentials that are valid when the request is sent.
// With coalesce, events in quick succession are read together, up to 150 ms late.
func (t *Transport) Client(cfg *rest.Config, coalesce bool) (_ *rest.Config, _ *http.Client, err error) {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go
	pool := &connectionPool{Transport: t, dialer: connrotation.NewDialer(dialer.DialContext), connecting: semaphore.NewWeighted(1)}
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = pool.dialer.DialContext
	if coalesce {
		cfg.Dial = coalesceReads(cfg.Dial)
	}
	if pool.next, err = rest.TransportFor(cfg); err != nil {
		return nil, nil, fmt.Errorf("build the informers' client: %w", err)
	}
	return cfg, &http.Client{Transport: pool}, nil
}

// connectionPool is the round tripper of one client.
type connectionPool struct {
	*Transport
	next       http.RoundTripper
	dialer     *connrotation.Dialer
	connecting *semaphore.Weighted

	lastByte time.Time // under the lock of Transport
}

// RoundTrip implements http.RoundTripper.
func (p *connectionPool) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	if req.Method != http.MethodGet {
		return p.next.RoundTrip(req)
	}
	r, logger := parseRequest(req.URL), klog.FromContext(req.Context())
	switch a := p.activityOf(r.watchTarget); {
	case r.streams && a.incompleteStreams >= maxIncompleteStreams:
		logger.V(2).Info("Streaming lists stall or are cut, using a plain list", "watch", r.watchTarget.String())
		return nil, errNoStream
	case r.resumes() && a.shortWatches > 0:
		p.updateActivity(r.watchTarget, func(a *activity, _ time.Time) { a.shortWatches-- })
		req = withQuery(req, url.Values{"timeoutSeconds": {fmt.Sprint(shortWatch.Seconds())}})
	case r.Resource != "" && !r.watch: // Without a version the API server reads etcd, in pages.
		req = withQuery(req, url.Values{"limit": {fmt.Sprint(pageSize)}, "resourceVersion": nil, "resourceVersionMatch": nil})
	}
	failingSince := p.clock.Now()
	for pause := reconnectPause; ; pause = min(2*pause, maxErrorPause) {
		if p.connecting.Acquire(req.Context(), 1) != nil {
			return nil, cmp.Or(err, req.Context().Err())
		}
		release := sync.OnceFunc(func() { p.connecting.Release(1) })
		time.AfterFunc(connectTimeout, release)
		sent := p.clock.Now()
		resp, err = p.sendOnce(req, r, release)
		failed := resp != nil && resp.StatusCode >= http.StatusInternalServerError
		if !failed {
			failingSince = sent
		}
		switch {
		case neverConnected(err):
			pause = reconnectPause
			if p.unreachable.CompareAndSwap(false, true) {
				logger.Info("API server cannot be reached, caches are kept", "server", req.URL.Host, "reason", err.Error())
			}
		case r.resumes() && isBroken(err):
		case r.watch && failed && sent.Sub(failingSince) < errorTimeout:
			_ = resp.Body.Close()
		default:
			release()
			if err == nil && !failed && p.unreachable.CompareAndSwap(true, false) {
				logger.Info("API server is back, watches are resumed", "server", req.URL.Host)
			}
			if r.streams && (failed || resp != nil && resp.StatusCode == http.StatusGone) {
				// After two minutes of 5xx client-go v0.37 lists at once. After a 410 of another API server it
				// repeats the streaming list at once.
				timing.Sleep(req.Context(), p.clock, wait.Jitter(maxErrorPause, pauseJitter))
				_ = p.retries.Wait(req.Context())
			}
			return resp, err
		}
		if !timing.Sleep(req.Context(), p.clock, wait.Jitter(pause, pauseJitter)) {
			// The semaphore stays taken until connectTimeout, so the next request does not connect at once.
			return nil, cmp.Or(err, req.Context().Err())
		}
		release()
		if failed {
			_ = p.retries.Wait(req.Context()) // Acquire returns the error of a context that has ended
		}
	}
}

// sendOnce sends a request once, and calls connected when the request has a connection.
func (p *connectionPool) sendOnce(req *http.Request, r informerRequest, connected func()) (*http.Response, error) {
	s, ctx := p.newStream(req.Context(), r)
	progress := func() {
		connected()
		p.updateActivity(r.watchTarget, func(a *activity, now time.Time) { a.lastProgress = now })
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { progress() }}
	resp, err := p.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		s.endStream()
		return nil, err
	}
	progress()
	s.ReadCloser, s.accepted, resp.Body = resp.Body, resp.StatusCode == http.StatusOK, s
	if s.accepted && r.streams {
		p.updateActivity(r.watchTarget, func(a *activity, _ time.Time) { a.incompleteStreams++ })
	}
	if resp.StatusCode == http.StatusGone && r.nextPage {
		_ = resp.Body.Close()
		return nil, errExpired
	}
	return resp, nil
}

// withQuery returns a copy of a request with other values of some parameters.
func withQuery(req *http.Request, values url.Values) *http.Request {
	query := req.URL.Query()
	maps.Copy(query, values)
	out := req.Clone(req.Context())
	out.URL.RawQuery = query.Encode()
	return out
}

// neverConnected reports whether a request failed before any part of the request was sent.
func neverConnected(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "proxyconnect" { // of net/http, around any error of the connection to the proxy
		err = op.Err
	}
	return errors.As(err, &op) && op.Op == "dial"
}

// isBroken reports whether a request failed because its connection did, or because the watch was cut.
func isBroken(err error) bool {
	return err != nil && (utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || errors.Is(err, context.Canceled))
}
