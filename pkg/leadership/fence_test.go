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

	"minikcm/internal/fakeapi"
)

func TestDecideRequest(t *testing.T) {
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
		want    requestDecision
	}{
		{"a write inside its term may take what is left", open, 3, true, requestDecision{term: 3, left: 5 * time.Second}},
		{"but no more than any other write", fresh, 3, true, requestDecision{term: 3, left: 11 * time.Second}},
		{"a write that carries no term belongs to the running one", open, 0, true, requestDecision{term: 3, left: 5 * time.Second}},
		{"a read inside a term is counted but has no deadline", open, 3, false, requestDecision{term: 3}},
		{"a write of the last term is not carried into this one", open, 2, true, requestDecision{rejected: "its term is over", term: 2}},
		{"a read of the last term neither", open, 2, false, requestDecision{rejected: "its term is over", term: 2}},
		{"a write at the deadline is too late", late, 3, true, requestDecision{rejected: "the lease was not renewed in time", term: 3}},
		{"a read at the deadline does no harm", late, 3, false, requestDecision{term: 3}},
		{"without election there is no deadline", endless, 1, true, requestDecision{term: 1}},
		{"a write after the end is rejected", shut, 3, true, requestDecision{rejected: "shutdown", term: 3}},
		{"a read of an ended term is rejected", shut, 3, false, requestDecision{rejected: "shutdown", term: 3}},
		{"a write between terms is rejected", shut, 0, true, requestDecision{rejected: "shutdown"}},
		{"a read between terms that belongs to none passes", shut, 0, false, requestDecision{}},
	} {
		fakeapi.Want(t, tt.name, tt.term.decideRequest(tt.carried, tt.mutates, now), tt.want)
	}
}

func TestLimitTimeout(t *testing.T) {
	for _, tt := range []struct{ name, query, want string }{
		{"none is set", "", "timeout=1.5s"},
		{"the rest of the query stays", "dryRun=All", "dryRun=All&timeout=1.5s"},
		{"a shorter one stays", "timeout=1s", "timeout=1s"},
		{"a longer one is shortened", "timeout=34s", "timeout=1.5s"},
		{"zero means none to the server", "timeout=0s", "timeout=1.5s"},
		{"a malformed one is left to the server", "timeout=soon", "timeout=soon"},
	} {
		query := fakeapi.Must(url.ParseQuery(tt.query))
		fakeapi.Want(t, tt.name, limitTimeout(query, 1500*time.Millisecond+time.Microsecond).Encode(), tt.want)
	}
}

// within returns the limits of a term with a deadline in d.
func within(d time.Duration) writeLimits {
	return writeLimits{until: time.Now().Add(d), maxDuration: time.Minute, slowAfter: time.Minute, margin: time.Second}
}

func openFence(limits writeLimits) (*Fence, *Metrics) {
	metrics := NewMetrics(prometheus.NewRegistry())
	fence := NewFence(realClock, metrics)
	fence.openTerm(1, limits)
	return fence, metrics
}

// send sends a request through the fence and reads the whole response.
func send(ctx context.Context, fence *Fence, server http.RoundTripper, method, path string) error {
	resp, err := fence.Wrap(server).RoundTrip(httptest.NewRequestWithContext(ctx, method, path, strings.NewReader("x")))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

func TestFenceRejectsOutsideATerm(t *testing.T) {
	var sent []string
	server := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
		sent = append(sent, req.Method)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	metrics := NewMetrics(prometheus.NewRegistry())
	fence := NewFence(realClock, metrics)
	check := func(phase string) {
		t.Helper()
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			err := send(t.Context(), fence, server, method, "/")
			var fenced *FencedError
			if !errors.As(err, &fenced) || fenced.Sent || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFenced) {
				t.Errorf("%s %s: %v, want a FencedError that is also context.Canceled", method, phase, err)
			}
		}
		fakeapi.Want(t, "result of GET "+phase, send(t.Context(), fence, server, "GET", "/"), nil)
	}
	check("before the first term")
	fence.openTerm(1, writeLimits{})
	fakeapi.Want(t, "result of POST inside a term", send(t.Context(), fence, server, "POST", "/"), nil)
	fence.closeTerm()
	check("after a term")
	fakeapi.Want(t, "refusals of PUT", testutil.ToFloat64(metrics.refusals.WithLabelValues("PUT")), 2)
	fence.openTerm(2, writeLimits{})
	earlier := context.WithoutCancel(withTerm(t.Context(), 1))
	fakeapi.WantError(t, "result of a write of term 1 in term 2", send(earlier, fence, server, "POST", "/"), ErrFenced)
	fakeapi.Want(t, "requests that reached the server", strings.Join(sent, " "), "GET POST GET")
}

// A slow read must not delay the next leader. Writes finish after a drain has begun.
func TestEndOfTermCancelsRequests(t *testing.T) {
	abort := func(f *Fence) { f.abortTerm("lease lost") }
	for _, tt := range []struct {
		name, method, path string
		end                func(*Fence)
		cancelled          bool
		counted            float64 // in leadership_fence_cuts_total
	}{
		{"abort, write", "POST", "/slow", abort, true, 1},
		{"abort, read", "GET", "/slow", abort, true, 1},
		{"abort, response has begun", "GET", "/body", abort, true, 1},
		{"abort twice", "PUT", "/slow", func(f *Fence) { abort(f); abort(f) }, true, 1},
		{"close, write", "POST", "/slow", func(f *Fence) { f.closeTerm() }, false, 0},
		{"drain, read", "GET", "/slow", (*Fence).startDrain, true, 0},
		{"drain, write", "POST", "/slow", (*Fence).startDrain, false, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			gate := make(chan struct{})
			wait := func(req *http.Request) error {
				select {
				case <-gate:
					return nil
				case <-req.Context().Done(): // As in HTTP/2, the error has another cause.
					return errors.New("stream reset")
				}
			}
			server := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/slow" {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, wait(req)
				}
				body, rest := io.Pipe()
				go func() { rest.CloseWithError(wait(req)) }()
				return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
			})
			fence, metrics := openFence(within(time.Minute))
			result := make(chan error, 1)
			go func() { result <- send(withTerm(context.Background(), 1), fence, server, tt.method, tt.path) }()
			synctest.Wait()
			fakeapi.Want(t, "in flight", fence.inFlight(), 1)
			tt.end(fence)
			synctest.Wait()
			fakeapi.Want(t, "still in flight after the end", fence.inFlight() == 1, !tt.cancelled)
			close(gate)
			err := <-result
			var fenced *FencedError
			if errors.As(err, &fenced) != tt.cancelled || tt.cancelled && !fenced.Sent || !tt.cancelled && err != nil {
				t.Errorf("result %v, want cancelled: %v", err, tt.cancelled)
			}
			fakeapi.Want(t, "in flight after the response", fence.inFlight(), 0)
			fakeapi.Want(t, "counted cuts", testutil.ToFloat64(metrics.cuts.WithLabelValues(tt.method)), tt.counted)
		})
	}
}

// A controller gets the errors through a typed client, and client-go does not repeat the request.
func TestFenceUnderClientGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{takes: time.Hour, deaf: true}
		fence, metrics := openFence(within(10 * time.Second))
		client := fakeapi.Must(kubernetes.NewForConfig(&rest.Config{Host: "http://host", Transport: server, WrapTransport: fence.Wrap}))
		remove := func() error {
			return client.CoreV1().Pods("a").Delete(t.Context(), "slow", metav1.DeleteOptions{})
		}
		var timeout *TimeoutError
		if err := remove(); !errors.As(err, &timeout) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrFenced) {
			t.Errorf("delete past the deadline: %v, want a TimeoutError", err)
		}
		fakeapi.WantEqual(t, "timeouts for the server", server.given, []time.Duration{10 * time.Second})
		if err := remove(); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrFenced) {
			t.Errorf("delete after the deadline: %v, want a FencedError", err)
		}
		fakeapi.Want(t, "client-go tried", testutil.ToFloat64(metrics.refusals.WithLabelValues("DELETE")), 1)
		fence.setLimits(within(time.Minute))
		server.takes, server.deaf = 0, false
		fakeapi.Want(t, "result of a delete after a renewal", remove(), nil)
	})
}

// dial calls the hooks of a connection attempt.
func dial(req *http.Request, connects bool) {
	trace := httptrace.ContextClientTrace(req.Context())
	if trace.GetConn("api:443"); connects {
		trace.GotConn(httptrace.GotConnInfo{})
	}
}

// A write without a response may complete until its deadline and the margin.
func TestUnknownOutcomes(t *testing.T) {
	const left, margin = 10 * time.Second, time.Second // see within
	say := func(status int, text string) fakeapi.RoundTripper {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text))}, nil
		}
	}
	respond := func(status int) fakeapi.RoundTripper { return say(status, "{}") }
	fail := func(err error) fakeapi.RoundTripper {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	dialing := func(connects bool) fakeapi.RoundTripper {
		return func(req *http.Request) (*http.Response, error) {
			if dial(req, connects); connects {
				dial(req, false) // the transport dials again
			}
			return nil, errors.New("connection refused")
		}
	}
	for _, tt := range []struct {
		name, method string
		server       fakeapi.RoundTripper
		unknown      bool
	}{
		{"created", "POST", respond(201), false},
		{"a conflict", "PUT", respond(409), false},
		{"the storage failed, or a proxy fails", "DELETE", respond(500), true},
		{"a webhook failed", "DELETE", say(500, `{"message":"Internal error occurred: failed calling webhook \"a.b.c\": refused"}`), false},
		{"the API server gave up waiting", "PATCH", respond(504), true},
		{"reset", "POST", fail(io.ErrUnexpectedEOF), true},
		{"a read", "GET", fail(io.ErrUnexpectedEOF), false},
		{"a dial that failed", "POST", dialing(false), false},
		{"a connection that broke, and a dial that failed", "POST", dialing(true), true},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			fence, metrics := openFence(within(left))
			sent := time.Now()
			_ = send(t.Context(), fence, tt.server, tt.method, "/")
			want := 0.0
			if tt.unknown {
				want = 1
				fakeapi.Want(t, "it may be done for", fence.unknownUntil().Sub(sent), left+margin)
			} else if fence.unknownUntil().After(sent) {
				t.Errorf("it may be done for %v, want not any more", fence.unknownUntil().Sub(sent))
			}
			fakeapi.Want(t, "unknown writes", testutil.ToFloat64(metrics.unknownWrites), want)
			_ = send(t.Context(), fence, respond(201), "POST", "/")
			fakeapi.Want(t, "unknown writes after a response", testutil.ToFloat64(metrics.unknownWrites), 0)
		})
	}
}

// A watch is stopped while another goroutine reads. Only the race detector can find a fault.
func TestResponseIsClosedDuringRead(t *testing.T) {
	fence, _ := openFence(within(time.Hour))
	resp, err := fence.Wrap(fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("event"))}, nil
	})).RoundTrip(httptest.NewRequest("GET", "/", nil))
	fakeapi.NoError(t, err)
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.ReadAll(resp.Body) })
	resp.Body.Close()
	reader.Wait()
}

// The transport does not notice the cancellation.
func TestCancelledWritesHaveUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fence, _ := openFence(within(10 * time.Second))
		sent := time.Now()
		go func() {
			_ = send(t.Context(), fence, fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
				time.Sleep(5 * time.Second)
				return nil, errors.New("reset")
			}), "POST", "/")
		}()
		sleep(time.Second)
		fence.abortTerm("lost")
		for range 2 {
			fakeapi.Want(t, "it may be done for", fence.unknownUntil().Sub(sent), 11*time.Second)
			sleep(5 * time.Second)
		}
	})
}

// Dialing uses part of the time of a write, and the server counts from the arrival of the request.
func TestTimeoutExcludesDialing(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			timeout := make(chan string, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				timeout <- r.URL.Query().Get("timeout")
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			fence, _ := openFence(within(30 * time.Second))
			transport := server.Client().Transport.(*http.Transport).Clone()
			const dialing = 200 * time.Millisecond
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				time.Sleep(dialing)
				return fence.Dial(ctx, network, address)
			}
			fakeapi.NoError(t, send(t.Context(), fence, transport, "POST", server.URL))
			if got, err := time.ParseDuration(<-timeout); err != nil || got > 30*time.Second-dialing {
				t.Errorf("timeout for the server %v (%v), want at most %v", got, err, 30*time.Second-dialing)
			}
		})
	}
}

// An extended lease helps with slow admission, not with a broken network.
func TestDialingWriteIsNotSlow(t *testing.T) {
	for _, connects := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fence, _ := openFence(writeLimits{until: time.Now().Add(10 * time.Second), maxDuration: time.Minute, slowAfter: 4 * time.Second})
			go func() {
				_ = send(t.Context(), fence, fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
					dial(req, connects)
					<-req.Context().Done()
					return nil, req.Context().Err()
				}), "POST", "/")
			}()
			sleep(3 * time.Second)
			fakeapi.Want(t, "slow after 3s", fence.hasSlowWrites(), false)
			sleep(2 * time.Second)
			fakeapi.Want(t, "slow after 5s", fence.hasSlowWrites(), connects)
			sleep(10 * time.Second)
		})
	}
}
