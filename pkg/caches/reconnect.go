package caches

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// reconnectPause is the pause between attempts to reach an API server that is not there. Reflectors would wait up to 30 s, each on its
// own, and see nothing for as long after the API server has come back.
const reconnectPause = 250 * time.Millisecond

// Reconnecting returns a wrapper, to be put around the transport of the caches' client, that holds a request until a connection can be
// made. To a reflector an API server that is away then looks like a slow one: nothing fails and nothing backs off.
func Reconnecting(clk clock.Clock) func(http.RoundTripper) http.RoundTripper {
	var away atomic.Bool // one line for all streams when it goes, and one when it is back
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			logger := klog.FromContext(req.Context())
			for {
				resp, err := next.RoundTrip(req)
				if !neverConnected(err) || req.Method != http.MethodGet {
					if err == nil && away.CompareAndSwap(true, false) {
						logger.Info("API server is back, watches go on where they left off", "server", req.URL.Host)
					}
					return resp, err
				}
				if away.CompareAndSwap(false, true) {
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
