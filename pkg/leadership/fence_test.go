package leadership

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
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
	open := tenure{number: 3, open: true, until: now.Add(5 * time.Second)}
	late := tenure{number: 3, open: true, until: now}
	endless := tenure{number: 1, open: true}
	shut := tenure{number: 3, why: "shutdown"}
	for _, tt := range []struct {
		name    string
		term    tenure
		carried uint64
		mutates bool
		want    admission
	}{
		{"a write inside its term may take what is left", open, 3, true, admission{term: 3, left: 5 * time.Second}},
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

func TestWriteUntil(t *testing.T) {
	sent := time.Unix(1e9, 0)
	for _, tt := range []struct {
		name          string
		lease, margin time.Duration
		want          time.Duration
	}{
		{"upstream's defaults", 15 * time.Second, 1500 * time.Millisecond, 13500 * time.Millisecond},
		{"others only see whole seconds", 15900 * time.Millisecond, time.Second, 14 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := writeUntil(sent, tt.lease, tt.margin).Sub(sent); got != tt.want {
				t.Errorf("writeUntil(%v, %v) is %v after the renewal was sent, want %v", tt.lease, tt.margin, got, tt.want)
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

// fencedServer is a server behind a fence. Its handler blocks on paths with "slow" until release is closed
// or the request ends.
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
		io.Copy(io.Discard, r.Body) // only then does the server notice a client that goes away
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

// do sends a request and reads the whole answer.
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
	s.fence.open(1, time.Time{})
	if err := s.do(t.Context(), "POST", "/"); err != nil {
		t.Errorf("POST inside a term: %v", err)
	}
	<-s.arrived
	s.fence.close("over")
	check("after a term")
	if got := testutil.ToFloat64(s.metrics.refusals.WithLabelValues("PUT")); got != 2 {
		t.Errorf("refusals of PUT = %v, want 2", got)
	}
}

func TestFenceHardEndCutsWhatIsInFlight(t *testing.T) {
	for _, tt := range []struct{ name, method, path string }{
		{"a write without an answer", "POST", "/slow"},
		{"a read without an answer", "GET", "/slow"},
		{"a read whose answer has begun", "GET", "/body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFencedServer(t)
			s.fence.open(7, time.Now().Add(time.Minute))
			result := make(chan error, 1)
			go func() { result <- s.do(withTerm(context.Background(), 7), tt.method, tt.path) }()
			<-s.arrived
			if got := s.fence.InFlight(); got != 1 {
				t.Errorf("in flight = %d, want 1", got)
			}
			s.fence.end("lease lost")
			err := <-result
			var fenced *FencedError
			if !errors.As(err, &fenced) || !fenced.Sent || fenced.Term != 7 || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want a cut request of term 7", err)
			}
			<-s.fence.idleNow()
			if got := s.fence.InFlight(); got != 0 {
				t.Errorf("in flight after the cut = %d, want 0", got)
			}
		})
	}
}

func TestFenceGentleCloseLetsRequestsFinish(t *testing.T) {
	s := newFencedServer(t)
	s.fence.open(1, time.Now().Add(time.Minute))
	result := make(chan error, 1)
	go func() { result <- s.do(t.Context(), "POST", "/slow") }()
	<-s.arrived
	s.fence.close("shutdown")
	idle := s.fence.idleNow()
	select {
	case <-idle:
		t.Error("idle with a request in flight")
	default:
	}
	close(s.release)
	if err := <-result; err != nil {
		t.Errorf("request in flight at a gentle end: %v", err)
	}
	<-idle
}

func TestFenceDeadline(t *testing.T) {
	s := newFencedServer(t)
	s.fence.open(1, time.Now().Add(50*time.Millisecond))
	err := s.do(t.Context(), "POST", "/slow")
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrFenced) {
		t.Errorf("a write past the deadline: %v, want context.DeadlineExceeded", err)
	}
	limit, err := time.ParseDuration((<-s.arrived).URL.Query().Get("timeout"))
	if err != nil || limit > 50*time.Millisecond {
		t.Errorf("timeout for the server = %v (%v), want at most 50ms", limit, err)
	}
	if err := s.do(t.Context(), "POST", "/"); !errors.Is(err, ErrFenced) {
		t.Errorf("a write after the deadline: %v, want a refusal", err)
	}
	s.fence.extend(time.Now().Add(time.Minute))
	if err := s.do(t.Context(), "POST", "/"); err != nil {
		t.Errorf("a write after a renewal: %v", err)
	}
	s.fence.extend(time.Now())
	if err := s.do(t.Context(), "POST", "/"); err != nil {
		t.Errorf("a write after a late answer to an earlier renewal: %v", err)
	}
}

func TestFenceDoesNotCarryAWriteIntoTheNextTerm(t *testing.T) {
	s := newFencedServer(t)
	s.fence.open(1, time.Time{})
	old := context.WithoutCancel(withTerm(t.Context(), 1))
	s.fence.end("lost")
	s.fence.open(2, time.Time{})
	if err := s.do(old, "POST", "/"); !errors.Is(err, ErrFenced) {
		t.Errorf("a write of term 1 in term 2: %v, want a refusal", err)
	}
}

// transportFunc is a transport that answers in its own words.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestFenceExplainsWhateverTheTransportSays: HTTP/2 has errors of its own for a request that was ended.
func TestFenceExplainsWhateverTheTransportSays(t *testing.T) {
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
	fence.open(1, time.Now().Add(time.Millisecond))
	if err := post(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the deadline: %v, want context.DeadlineExceeded", err)
	}
	<-sent
	fence.open(2, time.Time{})
	go func() {
		<-sent
		fence.end("lost")
	}()
	if err := post(); !errors.Is(err, ErrFenced) || !errors.Is(err, context.Canceled) {
		t.Errorf("cut: %v, want a *FencedError", err)
	}
}

// TestFenceUnderClientGo sees what a controller sees: the error through a typed client, and no retry.
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
	s.fence.open(1, time.Now().Add(50*time.Millisecond))
	client, err = kubernetes.NewForConfig(&rest.Config{Host: s.URL, APIPath: "/", WrapTransport: s.fence.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		result <- client.CoreV1().Pods("a").Delete(t.Context(), "slow", metav1.DeleteOptions{})
	}()
	if r := <-s.arrived; r.URL.Query().Get("timeout") == "" {
		t.Errorf("no timeout for the server in %s", r.URL)
	}
	if err := <-result; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a delete past the deadline through client-go: %v", err)
	}
}
