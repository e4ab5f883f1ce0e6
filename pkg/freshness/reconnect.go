package freshness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// reconnectPause is the pause between attempts to reach an API server that is not there. Reflectors would wait up to 30 s, each on its
// own, and see nothing for as long after the API server has come back.
const reconnectPause = 250 * time.Millisecond

// An API server that is there and answers 5xx is asked again after a pause that doubles, for as long as it may take to be replaced by
// another. After that the answer is the reflector's: it lists what it cannot watch.
const (
	longestPause  = 4 * time.Second
	errorPatience = 2 * time.Minute
	// feedPatience is the same for a type that may be of another server, if it was the API server that answered: such a type is listed anew after it, while
	// the watches of all others go on where they left off.
	feedPatience = 10 * time.Second
)

// shortestWatch is how old a watch is at least when it ends. One that ended sooner, and brought nothing, reflectors answer with a new list
// of everything, and with a pause that they double each time. For the stream of a list they begin to count when that is complete.
const shortestWatch = 1250 * time.Millisecond // client-go v0.37 (VeryShortWatchError): 1 s, and a little for storing what was listed

// reconnecting makes round trippers for the informers' clients, to be placed outside of what authenticates them. They hold a request until a
// connection can be made, and a watch until the API server answers it with something other than 5xx, for at most errorPatience or feedPatience. To a reflector an API
// server that is away, or a load balancer that answers in its place, then looks like a slow API server: nothing fails, backs off or lists again. A
// network that keeps breaking connections looks like watches that end, at most once a second, and are resumed where they left off.
type reconnecting struct {
	clock clock.Clock
	away  atomic.Bool // one line for all streams when the API server goes, and one when it is back
}

func newReconnecting(clk clock.Clock) *reconnecting { return &reconnecting{clock: clk} }

// wrap is for types that the API server itself serves.
func (r *reconnecting) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return r.roundTrip(next, req, false) })
}

// wrapFeeds is for types of which each may be of another server, unless [Own] says that it is not.
func (r *reconnecting) wrapFeeds(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return r.roundTrip(next, req, true) })
}

func (r *reconnecting) roundTrip(next http.RoundTripper, req *http.Request, feeds bool) (*http.Response, error) {
	logger, begun := klog.FromContext(req.Context()), r.clock.Now()
	for pause := reconnectPause; ; {
		asked := r.clock.Now()
		resp, err := next.RoundTrip(req)
		var reason string
		patience, there := errorPatience, feeds && !isOwn(req.Context()) && isAPIServers(resp)
		if there {
			patience = feedPatience
		}
		switch {
		case req.Method != http.MethodGet:
			return resp, err
		case neverConnected(err) || resumes(req.URL) && broken(err):
			reason, pause = err.Error(), reconnectPause
		case watches(req.URL) && failing(resp) && !saysTooLarge(resp) && asked.Sub(begun) < patience:
			reason = resp.Status
			_ = resp.Body.Close()
		default:
			if err == nil && !failing(resp) && r.away.CompareAndSwap(true, false) {
				logger.Info("API server is back, watches go on where they left off", "server", req.URL.Host)
			}
			return lasting(resp, req, asked, r.clock), err
		}
		if (neverConnected(err) || failing(resp) && !there) && r.away.CompareAndSwap(false, true) {
			logger.Info("API server cannot be reached, caches are kept", "server", req.URL.Host, "reason", reason)
		}
		if !timing.Sleep(req.Context(), r.clock, pause) {
			return nil, cmp.Or(err, req.Context().Err())
		}
		if err == nil {
			pause = min(2*pause, longestPause)
		}
	}
}

type ownKey struct{}

// Own marks the requests of a feed for a type that is part of the API server: if it answers them with 5xx, it is the API server that fails, and not one behind
// it, or a webhook of that type.
func Own(ctx context.Context) context.Context { return context.WithValue(ctx, ownKey{}, true) }

func isOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// failing reports whether a server answered that it cannot do its work now: 5xx. A server that cannot stream lists answers 422, which does not count.
func failing(resp *http.Response) bool {
	return resp != nil && resp.StatusCode >= http.StatusInternalServerError
}

// isAPIServers reports whether an API server has given an answer, and nobody in its place.
func isAPIServers(resp *http.Response) bool { return resp != nil && resp.Header.Get("Audit-Id") != "" }

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
