package leadership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

func TestAdmit(t *testing.T) {
	now := time.Unix(1e9, 0)
	open := fenceTerm{number: 3, open: true, limits: writeLimits{until: now.Add(5 * time.Second), maxDuration: 11 * time.Second}}
	fresh := fenceTerm{number: 3, open: true, limits: writeLimits{until: now.Add(13 * time.Second), maxDuration: 11 * time.Second}}
	late := fenceTerm{number: 3, open: true, limits: writeLimits{until: now, maxDuration: 11 * time.Second}}
	endless := fenceTerm{number: 1, open: true}
	shut := fenceTerm{number: 3, closedReason: "shutdown"}
	for _, tt := range []struct {
		name    string
		term    fenceTerm
		carried uint64
		mutates bool
		want    admission
	}{
		{"a write inside its term may take what is left", open, 3, true, admission{term: 3, left: 5 * time.Second}},
		{"but no more than any other write", fresh, 3, true, admission{term: 3, left: 11 * time.Second}},
		{"a write that carries no term belongs to the running one", open, 0, true, admission{term: 3, left: 5 * time.Second}},
		{"a read inside a term is counted but has no deadline", open, 3, false, admission{term: 3}},
		{"a write of the last term is not carried into this one", open, 2, true, admission{refused: "its term is over", term: 2}},
		{"a read of the last term neither", open, 2, false, admission{refused: "its term is over", term: 2}},
		{"a write at the deadline is too late", late, 3, true, admission{refused: "the lease was not renewed in time", term: 3}},
		{"a read at the deadline does no harm", late, 3, false, admission{term: 3}},
		{"without election there is no deadline", endless, 1, true, admission{term: 1}},
		{"a write after the end is refused", shut, 3, true, admission{refused: "shutdown", term: 3}},
		{"a read of an ended term is refused", shut, 3, false, admission{refused: "shutdown", term: 3}},
		{"a write between terms is refused", shut, 0, true, admission{refused: "shutdown"}},
		{"a read between terms that belongs to none passes", shut, 0, false, admission{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.term.admit(tt.carried, tt.mutates, now); got != tt.want {
				t.Errorf("admit(%d, %v) = %+v, want %+v", tt.carried, tt.mutates, got, tt.want)
			}
		})
	}
}

func TestLimitTimeout(t *testing.T) {
	for _, tt := range []struct{ name, query, want string }{
		{"none is set", "", "timeout=1.5s"},
		{"the rest of the query stays", "dryRun=All", "dryRun=All&timeout=1.5s"},
		{"a shorter one stays", "timeout=1s", "timeout=1s"},
		{"a longer one is shortened", "timeout=34s", "timeout=1.5s"},
		{"zero means none to the server", "timeout=0s", "timeout=1.5s"},
		{"a malformed one is the server's to refuse", "timeout=soon", "timeout=soon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query, err := url.ParseQuery(tt.query)
			if err != nil {
				t.Fatal(err)
			}
			if got := limitTimeout(query, 1500*time.Millisecond+time.Microsecond).Encode(); got != tt.want {
				t.Errorf("limitTimeout(%q) = %q, want %q", tt.query, got, tt.want)
			}
		})
	}
}

// within returns the limits of a term with a deadline in d.
func within(d time.Duration) writeLimits {
	return writeLimits{until: time.Now().Add(d), maxDuration: time.Hour, slowAfter: time.Hour}
}

// fencedServer is a server behind a fence. Its handler blocks on paths with "slow" until release is
// closed or the request ends.
type fencedServer struct {
	*httptest.Server
	fence   *Fence
	metrics *Metrics
	client  *http.Client
	arrived chan *http.Request
	release chan struct{}
}

func newFencedServer(t *testing.T) *fencedServer {
	t.Helper()
	s := &fencedServer{metrics: NewMetrics(prometheus.NewRegistry()), arrived: make(chan *http.Request, 100), release: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // otherwise the server does not notice a client that disconnects
		s.arrived <- r
		if strings.Contains(r.URL.Path, "slow") {
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		if strings.Contains(r.URL.Path, "body") {
			w.Write([]byte("first"))
			w.(http.Flusher).Flush()
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		w.Write([]byte("{}"))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	s.fence = NewFence(clock.RealClock{}, s.metrics)
	s.client = &http.Client{Transport: s.fence.Wrap(s.Server.Client().Transport)}
	return s
}

func (s *fencedServer) waitUntilIdle() {
	for s.fence.inFlight() > 0 {
		<-s.fence.idle
	}
}

// do sends a request and reads the whole response.
func (s *fencedServer) do(ctx context.Context, method, path string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader("x"))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

// overrun sends a request to a slow path in a term whose deadline passes before the response. The
// deadline grows until the request arrives.
func (s *fencedServer) overrun(t *testing.T, send func() error) (arrived *http.Request, allowed time.Duration, err error) {
	t.Helper()
	for allowed = 50 * time.Millisecond; allowed < time.Minute; allowed *= 2 {
		s.fence.openTerm(1, within(allowed))
		err = send()
		select {
		case arrived = <-s.arrived:
			return arrived, allowed, err
		default:
		}
	}
	t.Fatalf("the request never arrived: %v", err)
	return nil, 0, nil
}

func TestFenceRefusesOutsideATerm(t *testing.T) {
	s := newFencedServer(t)
	check := func(phase string) {
		t.Helper()
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			err := s.do(t.Context(), method, "/")
			var fenced *FencedError
			if !errors.As(err, &fenced) || fenced.Sent || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFenced) {
				t.Errorf("%s %s: got %v, want a refusal that is also context.Canceled", method, phase, err)
			}
		}
		if err := s.do(t.Context(), "GET", "/"); err != nil {
			t.Errorf("GET %s: %v, want it to pass: it belongs to no term", phase, err)
		}
		if r := <-s.arrived; r.Method != "GET" {
			t.Errorf("%s reached the server %s", r.Method, phase)
		}
	}
	check("before the first term")
	s.fence.openTerm(1, writeLimits{})
	if err := s.do(t.Context(), "POST", "/"); err != nil {
		t.Errorf("POST inside a term: %v", err)
	}
	<-s.arrived
	s.fence.closeTerm("over")
	check("after a term")
	if got := testutil.ToFloat64(s.metrics.refusals.WithLabelValues("PUT")); got != 2 {
		t.Errorf("refusals of PUT = %v, want 2", got)
	}
}

func TestAbortTermCancelsRequests(t *testing.T) {
	for _, tt := range []struct{ name, method, path string }{
		{"a write without an answer", "POST", "/slow"},
		{"a read without an answer", "GET", "/slow"},
		{"a read whose answer has begun", "GET", "/body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFencedServer(t)
			s.fence.openTerm(7, within(time.Minute))
			result := make(chan error, 1)
			go func() { result <- s.do(withTerm(context.Background(), 7), tt.method, tt.path) }()
			<-s.arrived
			if got := s.fence.inFlight(); got != 1 {
				t.Errorf("in flight = %d, want 1", got)
			}
			s.fence.abortTerm("lease lost")
			err := <-result
			var fenced *FencedError
			if !errors.As(err, &fenced) || !fenced.Sent || fenced.Term != 7 || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want a cut request of term 7", err)
			}
			s.waitUntilIdle()
			if got := s.fence.inFlight(); got != 0 {
				t.Errorf("in flight after the cut = %d, want 0", got)
			}
		})
	}
}

func TestCloseTermLetsRequestsFinish(t *testing.T) {
	s := newFencedServer(t)
	s.fence.openTerm(1, within(time.Minute))
	result := make(chan error, 1)
	go func() { result <- s.do(t.Context(), "POST", "/slow") }()
	<-s.arrived
	s.fence.closeTerm("shutdown")
	if s.fence.inFlight() == 0 {
		t.Error("idle with a request in flight")
	}
	close(s.release)
	if err := <-result; err != nil {
		t.Errorf("request in flight at a gentle end: %v", err)
	}
	s.waitUntilIdle()
}

// A slow read must not delay the next leader. Writes finish, and so do reads of syncs after the writes.
func TestDrainCancelsReads(t *testing.T) {
	s := newFencedServer(t)
	s.fence.openTerm(1, within(time.Minute))
	read, written := make(chan error, 1), make(chan error, 1)
	go func() { read <- s.do(t.Context(), "GET", "/slow") }()
	go func() { written <- s.do(t.Context(), "POST", "/slow") }()
	<-s.arrived
	<-s.arrived
	s.fence.startDrain()
	select {
	case err := <-read:
		var fenced *FencedError
		if !errors.As(err, &fenced) || !fenced.Sent {
			t.Errorf("read in flight: %v, want a cut request", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("a read in flight goes on after the term began to end")
	}
	if err := s.do(t.Context(), "GET", "/"); err != nil {
		t.Errorf("read while the term ends: %v", err)
	}
	close(s.release)
	if err := <-written; err != nil {
		t.Errorf("write in flight: %v", err)
	}
	if cuts := testutil.ToFloat64(s.metrics.cuts.WithLabelValues("GET")); cuts != 0 {
		t.Errorf("%v cuts were counted, want none: the term did not end hard", cuts)
	}
}

func TestUnansweredWritesMetric(t *testing.T) {
	s := newFencedServer(t)
	s.fence.openTerm(1, within(time.Minute))
	for _, step := range []struct {
		method, path string
		want         float64
	}{{"POST", "/slow", 1}, {"GET", "/", 1}, {"PUT", "/slow", 2}, {"POST", "/", 0}} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-s.arrived
			if step.path == "/slow" {
				cancel()
			}
		}()
		_ = s.do(ctx, step.method, step.path)
		s.waitUntilIdle()
		cancel()
		if got := testutil.ToFloat64(s.metrics.unanswered); got != step.want {
			t.Errorf("after %s %s: %v, want %v", step.method, step.path, got, step.want)
		}
	}
}

func TestFenceDeadline(t *testing.T) {
	s := newFencedServer(t)
	arrived, allowed, err := s.overrun(t, func() error { return s.do(t.Context(), "POST", "/slow") })
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrFenced) {
		t.Errorf("a write past the deadline: %v, want context.DeadlineExceeded", err)
	}
	limit, err := time.ParseDuration(arrived.URL.Query().Get("timeout"))
	if err != nil || limit > allowed {
		t.Errorf("timeout for the server = %v (%v), want at most %v", limit, err, allowed)
	}
	if err := s.do(t.Context(), "POST", "/"); !errors.Is(err, ErrFenced) {
		t.Errorf("a write after the deadline: %v, want a refusal", err)
	}
	s.fence.setLimits(within(time.Minute))
	if err := s.do(t.Context(), "POST", "/"); err != nil {
		t.Errorf("a write after a renewal: %v", err)
	}
}

func TestFenceDoesNotCarryAWriteIntoTheNextTerm(t *testing.T) {
	s := newFencedServer(t)
	s.fence.openTerm(1, writeLimits{})
	old := context.WithoutCancel(withTerm(t.Context(), 1))
	s.fence.abortTerm("lost")
	s.fence.openTerm(2, writeLimits{})
	if err := s.do(old, "POST", "/"); !errors.Is(err, ErrFenced) {
		t.Errorf("a write of term 1 in term 2: %v, want a refusal", err)
	}
}

// transportFunc is a function as http.RoundTripper.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// HTTP/2 has other errors for a cancelled request.
func TestFenceReplacesTransportErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence := NewFence(clock.RealClock{}, NewMetrics(prometheus.NewRegistry()))
		sent := make(chan struct{}, 1)
		rt := fence.Wrap(transportFunc(func(req *http.Request) (*http.Response, error) {
			sent <- struct{}{}
			<-req.Context().Done()
			return nil, errors.New("stream reset")
		}))
		post := func() error {
			_, err := rt.RoundTrip(httptest.NewRequest("POST", "/", strings.NewReader("x")))
			return err
		}
		fence.openTerm(1, within(time.Millisecond))
		if err := post(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the deadline: %v, want context.DeadlineExceeded", err)
		}
		<-sent
		fence.openTerm(2, writeLimits{})
		go func() {
			<-sent
			fence.abortTerm("lost")
		}()
		if err := post(); !errors.Is(err, ErrFenced) || !errors.Is(err, context.Canceled) {
			t.Errorf("cut: %v, want a *FencedError", err)
		}
	})
}

// A controller gets the error through a typed client, and client-go does not repeat the request.
func TestFenceUnderClientGo(t *testing.T) {
	s := newFencedServer(t)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, WrapTransport: s.fence.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	remove := func() error {
		return client.CoreV1().Pods("a").Delete(t.Context(), "b", metav1.DeleteOptions{})
	}
	if err := remove(); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFenced) {
		t.Errorf("refused delete through client-go: %v", err)
	}
	if got := testutil.ToFloat64(s.metrics.refusals.WithLabelValues("DELETE")); got != 1 {
		t.Errorf("client-go tried %v times, want 1", got)
	}
	client, err = kubernetes.NewForConfig(&rest.Config{Host: s.URL, APIPath: "/", WrapTransport: s.fence.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	arrived, _, err := s.overrun(t, func() error {
		return client.CoreV1().Pods("a").Delete(t.Context(), "slow", metav1.DeleteOptions{})
	})
	if arrived.URL.Query().Get("timeout") == "" {
		t.Errorf("no timeout for the server in %s", arrived.URL)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a delete past the deadline through client-go: %v", err)
	}
}

// A write without a response may complete until its deadline and the margin.
func TestUnknownOutcomes(t *testing.T) {
	const left, margin = 10 * time.Second, time.Second
	answer := func(status int) transportFunc {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		}
	}
	say := func(status int, text string) transportFunc {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text))}, nil
		}
	}
	fail := func(err error) transportFunc {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	dialling := func(connects bool) transportFunc {
		return func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("api:443")
			if connects {
				trace.GotConn(httptrace.GotConnInfo{})
				trace.GetConn("api:443") // the transport dials again
			}
			return nil, errors.New("connection refused")
		}
	}
	for _, tt := range []struct {
		name, method string
		server       transportFunc
		unknown      bool
	}{
		{"created", "POST", answer(201), false},
		{"refused", "POST", answer(403), false},
		{"a conflict", "PUT", answer(409), false},
		{"too many requests", "POST", answer(429), false},
		{"gone already", "DELETE", answer(404), false},
		{"a proxy gave up waiting for the request", "POST", answer(408), true},
		{"the storage failed, or a proxy says so", "DELETE", answer(500), true},
		{"a webhook failed", "DELETE", say(500, `{"message":"Internal error occurred: failed calling webhook \"a.b.c\": refused"}`), false},
		{"a proxy lost the API server", "PATCH", answer(502), true},
		{"unavailable", "POST", answer(503), true},
		{"the API server gave up waiting", "POST", answer(504), true},
		{"reset", "POST", fail(io.ErrUnexpectedEOF), true},
		{"a read", "GET", fail(io.ErrUnexpectedEOF), false},
		{"a dial that failed", "POST", dialling(false), false},
		{"a connection that broke, and a dial that failed", "POST", dialling(true), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				metrics := NewMetrics(prometheus.NewRegistry())
				fence := NewFence(clock.RealClock{}, metrics)
				fence.openTerm(1, writeLimits{until: time.Now().Add(left), maxDuration: time.Minute, slowAfter: time.Minute, margin: margin})
				sent := time.Now()
				resp, err := fence.Wrap(tt.server).RoundTrip(httptest.NewRequest(tt.method, "/", nil))
				if err == nil {
					_, _ = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				want := 0.0
				if tt.unknown {
					want = 1
					if got := fence.unknownUntil().Sub(sent); got != left+margin {
						t.Errorf("it may be done for %v, want %v", got, left+margin)
					}
				} else if fence.unknownUntil().After(sent) {
					t.Errorf("it may be done for %v, want not any more", fence.unknownUntil().Sub(sent))
				}
				if got := testutil.ToFloat64(metrics.unanswered); got != want {
					t.Errorf("unanswered writes = %v, want %v", got, want)
				}
			})
		})
	}
}

// A watch is stopped while another goroutine reads. Only the race detector can find a fault.
func TestResponseIsClosedDuringRead(t *testing.T) {
	fence := NewFence(clock.RealClock{}, NewMetrics(prometheus.NewRegistry()))
	fence.openTerm(1, writeLimits{until: time.Now().Add(time.Hour), maxDuration: time.Minute, slowAfter: time.Minute, margin: time.Second})
	resp, err := fence.Wrap(transportFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("event"))}, nil
	})).RoundTrip(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.ReadAll(resp.Body) })
	resp.Body.Close()
	reader.Wait()
}

// The transport does not notice the cancellation.
func TestCancelledWritesHaveUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence := NewFence(clock.RealClock{}, NewMetrics(prometheus.NewRegistry()))
		fence.openTerm(1, writeLimits{until: time.Now().Add(10 * time.Second), maxDuration: time.Minute, slowAfter: time.Minute, margin: time.Second})
		sent := time.Now()
		go func() {
			_, _ = fence.Wrap(transportFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(5 * time.Second)
				return nil, errors.New("reset")
			})).RoundTrip(httptest.NewRequest("POST", "/", nil))
		}()
		sleep(time.Second)
		fence.abortTerm("lost")
		for range 2 {
			if got := fence.unknownUntil().Sub(sent); got != 11*time.Second {
				t.Errorf("%v after it was sent: it may be done for %v, want 11s", time.Since(sent), got)
			}
			sleep(5 * time.Second)
		}
	})
}

// Dialing uses part of the time of a write, and the server counts from the arrival of the request.
func TestTimeoutExcludesDialing(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			told := make(chan string, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				told <- r.URL.Query().Get("timeout")
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			fence := NewFence(clock.RealClock{}, NewMetrics(prometheus.NewRegistry()))
			fence.openTerm(1, within(30*time.Second))
			transport := server.Client().Transport.(*http.Transport).Clone()
			dialled := make(chan struct{})
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				<-dialled
				return fence.Dial(ctx, network, address)
			}
			const dialling = 200 * time.Millisecond
			time.AfterFunc(dialling, func() { close(dialled) })
			req, err := http.NewRequest("POST", server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := fence.Wrap(transport).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got, err := time.ParseDuration(<-told); err != nil || got > 30*time.Second-dialling {
				t.Errorf("the server was told %v (%v), want at most %v", got, err, 30*time.Second-dialling)
			}
		})
	}
}

// An extended lease helps with slow admission, not with a broken network.
func TestDialingWriteIsNotSlow(t *testing.T) {
	for _, connects := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fence := NewFence(clock.RealClock{}, NewMetrics(prometheus.NewRegistry()))
			fence.openTerm(1, writeLimits{until: time.Now().Add(10 * time.Second), maxDuration: time.Minute, slowAfter: 4 * time.Second})
			go func() {
				_, _ = fence.Wrap(transportFunc(func(req *http.Request) (*http.Response, error) {
					trace := httptrace.ContextClientTrace(req.Context())
					trace.GetConn("api:443")
					if connects {
						trace.GotConn(httptrace.GotConnInfo{})
					}
					<-req.Context().Done()
					return nil, req.Context().Err()
				})).RoundTrip(httptest.NewRequest("POST", "/", nil))
			}()
			sleep(3 * time.Second)
			if fence.hasSlowWrites() {
				t.Error("slow after 3s")
			}
			sleep(2 * time.Second)
			if got := fence.hasSlowWrites(); got != connects {
				t.Errorf("slow after 5s = %v, want %v", got, connects)
			}
			sleep(10 * time.Second)
		})
	}
}

// A loss in a watch event aborts the term in the fence, and so does the term runner.
func TestCancelledRequestIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics(prometheus.NewRegistry())
		fence := NewFence(clock.RealClock{}, metrics)
		fence.openTerm(1, writeLimits{})
		slow := transportFunc(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			time.Sleep(time.Second) // until the transport returns
			return nil, req.Context().Err()
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = fence.Wrap(slow).RoundTrip(httptest.NewRequest("PUT", "/", nil))
		}()
		synctest.Wait()
		fence.abortTerm("seen")
		fence.abortTerm("noticed")
		<-done
		if n := testutil.ToFloat64(metrics.cuts.WithLabelValues("PUT")); n != 1 {
			t.Errorf("%v requests were counted as cut, want 1", n)
		}
	})
}
