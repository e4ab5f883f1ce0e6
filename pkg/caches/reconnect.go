package caches

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// reconnectPause is the pause between attempts to reach an API server that is not there. Reflectors would wait up to 30 s, each on its
// own, and see nothing for as long after the API server has come back.
const reconnectPause = 250 * time.Millisecond

// shortestWatch is how old a watch is at least when it ends. One that ended sooner, and brought nothing, reflectors answer with a new list
// of everything, and with a pause that they double each time. For the stream of a list they begin to count when that is complete.
const shortestWatch = 1250 * time.Millisecond // client-go v0.37 (VeryShortWatchError): 1 s, and a little for storing what was listed

// Reconnecting returns a wrapper, to be put around the transport of the caches' client, that holds a request until a connection can be
// made. To a reflector an API server that is away then looks like a slow one: nothing fails and nothing backs off. A network that breaks
// connections again and again looks like one whose watches end, once a second at most, and go on where they left off.
func Reconnecting(clk clock.Clock) func(http.RoundTripper) http.RoundTripper {
	var away atomic.Bool // one line for all streams when it goes, and one when it is back
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			logger := klog.FromContext(req.Context())
			for {
				asked := clk.Now()
				resp, err := next.RoundTrip(req)
				unreachable := neverConnected(err)
				if req.Method != http.MethodGet || !unreachable && !(resumes(req.URL) && broken(err)) {
					if err == nil && away.CompareAndSwap(true, false) {
						logger.Info("API server is back, watches go on where they left off", "server", req.URL.Host)
					}
					return lasting(resp, req, asked, clk), err
				}
				if unreachable && away.CompareAndSwap(false, true) {
					logger.Info("API server cannot be reached, caches are kept", "server", req.URL.Host, "reason", err.Error())
				}
				select {
				case <-req.Context().Done():
					return nil, err
				case <-clk.After(reconnectPause):
				}
			}
		})
	}
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
