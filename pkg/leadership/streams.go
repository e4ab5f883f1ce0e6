package leadership

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"
)

// Streams knows every open watch of the informers' clients. Each of them gets a [Link].
//
// Safe for concurrent use.
type Streams struct {
	clock   clock.PassiveClock
	metrics *Metrics

	lock sync.Mutex
	open map[*stream]struct{}
}

// NewStreams returns a registry without streams.
func NewStreams(clk clock.PassiveClock, m *Metrics) *Streams {
	return &Streams{clock: clk, metrics: m, open: map[*stream]struct{}{}}
}

// Link is the way of one client to the API server, on connections of its own: set rest.Config.Wrap(link.Wrap) and
// rest.Config.Dial = link.Dial on that client's config, and on no other.
type Link struct {
	streams *Streams
	dialer  *connrotation.Dialer
}

// Link returns a link that has no connection yet.
func (s *Streams) Link() *Link {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go's own
	return &Link{streams: s, dialer: connrotation.NewDialer(dialer.DialContext)}
}

// Wrap watches the watches that go through rt. It fits rest.Config.Wrap.
func (l *Link) Wrap(rt http.RoundTripper) http.RoundTripper {
	return &streamTransport{link: l, next: rt}
}

// Dial opens a connection that Streams can close when everything on the link has gone silent. It fits rest.Config.Dial.
func (l *Link) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.dialer.DialContext(ctx, network, address)
}

// watchTarget is what a watch request asks for.
type watchTarget struct {
	schema.GroupVersionResource
	namespace string // "": all
}

// String is how logs and readiness name it.
func (t watchTarget) String() string {
	if t.namespace == "" {
		return t.Resource
	}
	return t.Resource + " in " + t.namespace
}

// labels are those of its metrics.
func (t watchTarget) labels() []string { return []string{t.Resource, t.namespace} }

// stream is one open watch, from the sending of its request.
type stream struct {
	target watchTarget
	link   *Link
	stop   context.CancelFunc

	// under the lock of Streams
	heard  time.Time // last byte; before the first, when it was asked for
	closed bool      // by us: the reader sees the end of the stream, not an error
}

// hearing is what Streams knows of the watches of one target.
type hearing struct {
	open  bool      // some watch is open, or asked for
	heard time.Time // the last byte of any, or when the youngest was asked for; zero if none is open
}

// hear returns what is known of one target. A watch of all namespaces serves each of them.
func (s *Streams) hear(target watchTarget) hearing {
	s.lock.Lock()
	defer s.lock.Unlock()
	var h hearing
	for st := range s.open {
		if st.serves(target) && !st.closed {
			h.open, h.heard = true, later(h.heard, st.heard)
		}
	}
	return h
}

func (st *stream) serves(target watchTarget) bool {
	return st.target.GroupVersionResource == target.GroupVersionResource &&
		(st.target.namespace == target.namespace || st.target.namespace == "")
}

// reopen ends the watches of one target; their reflector opens new ones where they left off. If nothing
// has been heard on any watch of their link since, its connections are closed too, so that the new ones take others.
// It says whether there was a watch to end.
func (s *Streams) reopen(target watchTarget, since time.Time) bool {
	s.lock.Lock()
	ended, heard := map[*Link]bool{}, map[*Link]bool{}
	for st := range s.open {
		if st.heard.After(since) {
			heard[st.link] = true
		}
		if st.serves(target) && !st.closed {
			st.closed = true
			ended[st.link] = true
			defer st.stop()
		}
	}
	s.lock.Unlock()
	if len(ended) == 0 {
		return false
	}
	s.metrics.reopened.WithLabelValues(target.labels()...).Inc()
	for link := range ended {
		if !heard[link] {
			defer link.dialer.CloseAll() // before the streams' own ends: their new requests must find none of these
		}
	}
	return true
}

// heard notes that bytes have arrived, and says whether we have closed the stream.
func (s *Streams) heard(st *stream, bytes int) (closed bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if bytes > 0 {
		st.heard = s.clock.Now()
	}
	return st.closed
}

func (s *Streams) add(st *stream) {
	s.lock.Lock()
	defer s.lock.Unlock()
	st.heard = s.clock.Now()
	s.open[st] = struct{}{}
}

func (s *Streams) remove(st *stream) {
	st.stop()
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.open, st)
}

// streamTransport registers the watches that pass it.
type streamTransport struct {
	link *Link
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (t *streamTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *streamTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	target, ok := watched(req.URL)
	if !ok {
		return t.next.RoundTrip(req)
	}
	ctx, stop := context.WithCancel(req.Context())
	streams, st := t.link.streams, &stream{target: target, link: t.link, stop: stop}
	streams.add(st)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		streams.remove(st)
		return nil, err
	}
	resp.Body = &streamBody{ReadCloser: resp.Body, streams: streams, stream: st}
	return resp, nil
}

// streamBody listens to a watch.
type streamBody struct {
	io.ReadCloser
	streams *Streams
	stream  *stream
}

// Read implements io.Reader. A stream we closed ends like one the server closed: a reflector then goes on
// from the version it has reached, while after an error it would list anew.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if closed := b.streams.heard(b.stream, n); closed && err != nil {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *streamBody) Close() error {
	err := b.ReadCloser.Close()
	b.streams.remove(b.stream)
	return err
}

// watched tells what a URL watches, if it is one of a watch:
// [prefix]/api/v1 or /apis/group/version, then [/namespaces/x]/resource, with watch=true or 1.
func watched(u *url.URL) (watchTarget, bool) {
	if w := u.Query().Get("watch"); w != "true" && w != "1" {
		return watchTarget{}, false
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	var target watchTarget
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:] // the path of a server behind a proxy
	}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		target.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		target.Group, target.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return watchTarget{}, false
	}
	if len(parts) == 3 && parts[0] == "namespaces" {
		target.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) != 1 {
		return watchTarget{}, false
	}
	target.Resource = parts[0]
	return target, true
}
