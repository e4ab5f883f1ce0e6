package freshness

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// Streams knows every open watch of the informers' clients, and what was heard of each type on all watches and lists so far: a new
// attempt knows what those before it did. Each client gets a [Link].
//
// Safe for concurrent use.
type Streams struct {
	clock   clock.PassiveClock
	metrics *Metrics

	lock  sync.Mutex
	open  map[*stream]struct{}
	known map[watchTarget]hearing
}

// NewStreams returns a registry without streams.
func NewStreams(clk clock.PassiveClock, m *Metrics) *Streams {
	return &Streams{clock: clk, metrics: m, open: map[*stream]struct{}{}, known: map[watchTarget]hearing{}}
}

// Link is the way of one client to the API server, on connections of its own: set rest.Config.Wrap(link.Wrap) and
// rest.Config.Dial = link.Dial on that client's config, and on no other.
type Link struct {
	streams *Streams
	dialer  *connrotation.Dialer
	feeds   bool // lists are not counted

	heard time.Time // last byte of any watch or list; under the lock of Streams
}

// Link returns a link that has no connection yet.
func (s *Streams) Link() *Link {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as client-go's own
	return &Link{streams: s, dialer: connrotation.NewDialer(dialer.DialContext)}
}

// Wrap listens to the watches and lists that go through rt. It fits rest.Config.Wrap.
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

// hearing is what is known of the requests of one target.
type hearing struct {
	open bool // some watch is open, or asked for
	// heard is when the last byte came, of whatever watch or list; zero if none ever did.
	heard time.Time
	// listing is when its reflector last asked for everything, or for a page of it; zero if it has gone on from a version since. Where a
	// list ends that begins a stream, only its reader knows.
	listing time.Time
	// answered is the last sign that the list is being worked on: a connection was found for it, an answer of whatever kind, a byte.
	answered time.Time
	link     *Link // of the last request
}

// with is h and other together.
func (h hearing) with(other hearing) hearing {
	return hearing{open: h.open || other.open, heard: timing.Later(h.heard, other.heard), listing: timing.Later(h.listing, other.listing), answered: timing.Later(h.answered, other.answered)}
}

// hear returns what is known of one target. A watch of all namespaces serves each of them.
func (s *Streams) hear(target watchTarget) hearing {
	s.lock.Lock()
	defer s.lock.Unlock()
	var h hearing
	for other, known := range s.known {
		if other.serves(target) {
			h = h.with(known)
		}
	}
	for st := range s.open {
		h.open = h.open || st.target.serves(target) && !st.closed
	}
	return h
}

// serves says whether who asks for t gets all of other.
func (t watchTarget) serves(other watchTarget) bool {
	return t.GroupVersionResource == other.GroupVersionResource && (t.namespace == other.namespace || t.namespace == "")
}

// stream is one open watch, from the sending of its request.
type stream struct {
	target watchTarget
	link   *Link
	stop   context.CancelFunc
	closed bool // by us: the reader sees the end of the stream, not an error; under the lock of Streams
}

// reopen ends the watches of one target; their reflector opens new ones where they left off. If nothing has been heard after since on the link of the
// target's last request, the connections of that link are closed too, so that the next watch takes another one. That is done even if no watch is open, as
// between two tries of a watch that is refused. It reports whether there was a watch to end.
func (s *Streams) reopen(target watchTarget, since time.Time) bool {
	return s.end(target, func(l *Link) bool { return !l.heard.After(since) })
}

// leave is reopen with the connections closed whatever is heard on them.
func (s *Streams) leave(target watchTarget) { s.end(target, func(*Link) bool { return true }) }

// end ends the watches of one target, and the connections of its link if that is useless. useless is called with the lock held.
func (s *Streams) end(target watchTarget, useless func(*Link) bool) bool {
	s.lock.Lock()
	ended := false
	for st := range s.open {
		if st.target.serves(target) && !st.closed {
			st.closed, ended = true, true
			defer st.stop()
		}
	}
	closing := map[*Link]bool{}
	for other, known := range s.known {
		if other.serves(target) && known.link != nil && useless(known.link) {
			closing[known.link] = true
		}
	}
	s.lock.Unlock()
	if ended {
		s.metrics.reopened.WithLabelValues(target.labels()...).Inc()
	}
	for link := range closing {
		defer link.dialer.CloseAll() // deferred last, so it runs before the streams are stopped: the requests that follow must find none of these connections
	}
	return ended
}

// Heard is when the last byte of a type came, on watches and lists of all namespaces; zero: none ever did.
func (s *Streams) Heard(resource schema.GroupVersionResource) time.Time {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.known[watchTarget{GroupVersionResource: resource}].heard
}

// Reopen ends the watch of a type in all namespaces; its reflector opens another, and goes on where it left off. If nothing has been heard on
// its link since, that one takes another connection. It says whether there was a watch to end.
func (s *Streams) Reopen(resource schema.GroupVersionResource, since time.Time) bool {
	return s.reopen(watchTarget{GroupVersionResource: resource}, since)
}

// Forget drops what is known of a type that is no longer watched, and its metrics: types may come and go by the thousand.
func (s *Streams) Forget(resource schema.GroupVersionResource) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.known, watchTarget{GroupVersionResource: resource})
	for other := range s.known {
		if other.Resource == resource.Resource { // of another group, or version: they are not told apart
			return
		}
	}
	s.metrics.forget(resource.Resource)
}

// update changes what is known of a target.
func (s *Streams) update(target watchTarget, change func(h *hearing, now time.Time)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	h := s.known[target]
	change(&h, s.clock.Now())
	s.known[target] = h
}

// asks notes a request.
func (s *Streams) asks(r informerRequest, link *Link) {
	s.update(r.watchTarget, func(h *hearing, now time.Time) {
		h.link = link
		if h.listing = now; r.resumes {
			h.listing = time.Time{}
		}
	})
}

// answered notes that a request is being worked on.
func (s *Streams) answered(target watchTarget) {
	s.update(target, func(h *hearing, now time.Time) { h.answered = now })
}

// heard notes that bytes have arrived.
func (s *Streams) heard(target watchTarget, link *Link) {
	s.update(target, func(h *hearing, now time.Time) { h.heard, h.answered, link.heard = now, now, now })
}

func (s *Streams) add(st *stream) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.open[st] = struct{}{}
}

func (s *Streams) remove(st *stream) {
	st.stop()
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.open, st)
}

// wasClosed says whether we have closed a stream.
func (s *Streams) wasClosed(st *stream) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return st.closed
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
	r, ok := informerRequestOf(req)
	if !ok {
		return t.next.RoundTrip(req)
	}
	streams := t.link.streams
	streams.asks(r, t.link)
	ctx, stop := context.WithCancel(req.Context())
	st := &stream{target: r.watchTarget, link: t.link, stop: stop}
	if r.watch {
		streams.add(st)
	}
	// A request that waits for a connection is not being worked on, however long that takes.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { streams.answered(r.watchTarget) }})
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		streams.remove(st)
		return nil, err
	}
	streams.answered(r.watchTarget)
	if r.begins && !t.link.feeds && resp.StatusCode == http.StatusOK {
		streams.metrics.lists.WithLabelValues(append(r.labels(), r.form())...).Inc()
	}
	resp.Body = &streamBody{ReadCloser: resp.Body, streams: streams, stream: st, refused: resp.StatusCode != http.StatusOK}
	return resp, nil
}

// streamBody listens to a watch or a list.
type streamBody struct {
	io.ReadCloser
	streams *Streams
	stream  *stream
	refused bool // why is said in it, and nothing of the type
}

// Read implements io.Reader. A stream we closed ends like one the server closed: a reflector then goes on
// from the version it has reached, while after an error it would list anew.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.refused {
		b.streams.heard(b.stream.target, b.stream.link)
	}
	if err != nil && b.streams.wasClosed(b.stream) {
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

// informerRequest is what a request of an informer asks for.
type informerRequest struct {
	watchTarget
	watch   bool // the answer is a stream
	resumes bool // it goes on from a version; all others are of everything there is
	begins  bool // it is the first of a list
}

// form is how a list comes.
func (r informerRequest) form() string {
	if r.watch {
		return listStreamed
	}
	return listPaged
}

// informerRequestOf reads a request. It is false for what is no list and no watch of a type.
func informerRequestOf(req *http.Request) (informerRequest, bool) {
	target, ok := collection(req.URL.Path)
	if !ok || req.Method != http.MethodGet {
		return informerRequest{}, false
	}
	query := req.URL.Query()
	version := query.Get("resourceVersion")
	r := informerRequest{watchTarget: target, watch: query.Get("watch") == "true" || query.Get("watch") == "1"}
	r.resumes = r.watch && version != "" && version != "0" && query.Get("sendInitialEvents") != "true"
	r.begins = !r.resumes && query.Get("continue") == ""
	return r, true
}

// collection tells which type a path lists: [prefix]/api/v1 or /apis/group/version, then [/namespaces/x]/resource.
func collection(path string) (watchTarget, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
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
