package freshness

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

func TestReconnectingHoldsARequestUntilTheServerIsThere(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, tt := range []struct {
		name    string
		method  string
		query   string
		err     error // while the server is away, for one second
		wantErr error
		want    time.Duration // until the request returns
	}{
		{"nobody listens", http.MethodGet, "", refused, nil, time.Second},
		{"a list that broke its connection is for the caller", http.MethodGet, "?resourceVersion=7", reset, reset, 0},
		{"so is a streaming list", http.MethodGet, "?watch=true&sendInitialEvents=true&resourceVersion=7", reset, reset, 0},
		{"and a watch from any version, which begins with a list", http.MethodGet, "?watch=true&resourceVersion=0", reset, reset, 0},
		{"a watch that goes on where it was is asked for again", http.MethodGet, "?watch=true&resourceVersion=7", reset, nil, time.Second},
		{"so is one whose answer was awaited when the connection was closed", http.MethodGet, "?watch=true&resourceVersion=7", io.EOF, nil, time.Second},
		{"a certificate is not mended by asking again", http.MethodGet, "?watch=true&resourceVersion=7", x509.UnknownAuthorityError{}, x509.UnknownAuthorityError{}, 0},
		{"only reads wait", http.MethodPost, "", refused, refused, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				rt := newReconnecting(clock.RealClock{}).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					if time.Since(start) < time.Second {
						return nil, tt.err
					}
					return &http.Response{StatusCode: http.StatusOK}, nil
				}))
				req, err := http.NewRequestWithContext(t.Context(), tt.method, "https://server/api/v1/pods"+tt.query, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = rt.RoundTrip(req)
				if took := time.Since(start); !errors.Is(err, tt.wantErr) || took != tt.want {
					t.Errorf("returned %v after %v, want %v after %v", err, took, tt.wantErr, tt.want)
				}
			})
		})
	}
}

// answer is a response with a body.
func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(body))}
}

// A reflector lists everything anew after most errors. A server that is about to be replaced is asked again instead.
func TestReconnectingAsksAServerThatFailsAgain(t *testing.T) {
	const goesOn = "?watch=true&resourceVersion=7"
	for _, tt := range []struct {
		name  string
		query string
		code  int
		body  string
		lasts time.Duration
		want  int // code
		asked int // requests, at most
	}{
		{"a watch behind a load balancer without servers", goesOn, 503, "", 10 * time.Second, 200, 8},
		{"one whose server does not answer it", goesOn, 504, "", 10 * time.Second, 200, 8},
		{"one whose server has gone", goesOn, 502, "", 10 * time.Second, 200, 8},
		{"one whose server has trouble with etcd", goesOn, 500, "", 10 * time.Second, 200, 8},
		{"a streaming list", "?watch=true&sendInitialEvents=true", 503, "", 10 * time.Second, 200, 8},
		{"for minutes: the reflector has to do something else", goesOn, 503, "", time.Hour, 503, 40},
		{"a version that the server does not have", goesOn, 504, `{"causes":[{"reason":"ResourceVersionTooLarge"}]}`, time.Hour, 504, 1},
		{"lists that cannot be streamed", "?watch=true&sendInitialEvents=true", 422, "", time.Hour, 422, 1},
		{"too many requests: the reflector waits", goesOn, 429, "", time.Hour, 429, 1},
		{"a plain list: so it does", "?limit=500", 503, "", time.Hour, 503, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, asked := time.Now(), 0
				rt := newReconnecting(clock.RealClock{}).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					if asked++; time.Since(start) < tt.lasts {
						return answer(tt.code, tt.body), nil
					}
					return answer(http.StatusOK, ""), nil
				}))
				resp := get(t, rt, "https://server/api/v1/pods"+tt.query)
				if resp.StatusCode != tt.want || asked > tt.asked {
					t.Errorf("answered %d after %d requests, want %d after at most %d", resp.StatusCode, asked, tt.want, tt.asked)
				}
				if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK && string(body) != tt.body || err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("body %q, %v; want %q", body, err, tt.body)
				}
			})
		})
	}
}

// Behind the API server there are others. That one of those fails is not for the watches of all types to be told, and those of its own are told soon.
func TestOneAPIThatFailsIsNotTheAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		feeds bool
		own   bool   // the type is part of the API server
		audit string // of the answer
		after time.Duration
		lines int
	}{
		{"an API behind the API server", true, false, "a", 8 * time.Second, 0},
		{"a load balancer in the place of the API server", true, false, "", 2 * time.Minute, 1},
		{"the API server itself, which serves all types of the caches", false, false, "a", 2 * time.Minute, 1},
		{"the API server itself, which serves some types of the feeds", true, true, "a", 2 * time.Minute, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, lines := newReconnecting(clock.RealClock{}), 0
				wrap := r.wrap
				if tt.feeds {
					wrap = r.wrapFeeds
				}
				rt := wrap(roundTripper(func(req *http.Request) (*http.Response, error) {
					if strings.HasSuffix(req.URL.Path, "widgets") {
						resp := answer(http.StatusServiceUnavailable, "")
						resp.Header = http.Header{"Audit-Id": {tt.audit}}
						return resp, nil
					}
					return answer(http.StatusOK, ""), nil
				}))
				ctx := klog.NewContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
				if tt.own {
					ctx = Own(ctx)
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/apis/example.com/v1/widgets?watch=true&resourceVersion=7", nil)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				resp, err := rt.RoundTrip(req)
				if took := time.Since(start); err != nil || resp.StatusCode != http.StatusServiceUnavailable || took < tt.after || took > tt.after+2*longestPause {
					t.Errorf("answered %v, %v after %v, want the failure after %v", resp, err, took, tt.after)
				}
				if lines != tt.lines {
					t.Errorf("%d lines were logged, want %d", lines, tt.lines)
				}
			})
		})
	}
}

func TestReconnectingEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newReconnecting(clock.RealClock{}).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.RoundTrip(req); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("RoundTrip = %v, want the last failure", err)
		}
	})
}

// brokenBody is a watch that breaks some time after it was opened, with or without an event before.
type brokenBody struct {
	breaks time.Time
	event  string // comes just before
	err    error
}

func (b *brokenBody) Read(p []byte) (int, error) {
	time.Sleep(time.Until(b.breaks))
	if n := copy(p, b.event); n > 0 {
		b.event = ""
		return n, nil
	}
	return 0, b.err
}

func (b *brokenBody) Close() error { return nil }

// A reflector lists everything anew after an error, and after a stream that was over within a second.
func TestWatchesNeitherFailNorEndEarly(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, tt := range []struct {
		name  string
		query string
		code  int
		after time.Duration // the stream breaks
		event string
		want  time.Duration // it ends
		err   error
	}{
		{"broken at once", "?watch=true&resourceVersion=7", http.StatusOK, 0, "", 1250 * time.Millisecond, nil},
		{"broken early, after an event", "?watch=true&resourceVersion=7", http.StatusOK, 300 * time.Millisecond, "pod", 1250 * time.Millisecond, nil},
		{"broken later", "?watch=1&resourceVersion=7", http.StatusOK, time.Minute, "pod", time.Minute, nil},
		{"broken right after a streaming list", "?watch=true&sendInitialEvents=true", http.StatusOK, 300 * time.Millisecond, "pod", 1550 * time.Millisecond, nil},
		{"a list is no stream", "", http.StatusOK, 0, "", 0, reset},
		{"nor is a refusal", "?watch=true", http.StatusTooManyRequests, 0, "", 0, reset},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				rt := newReconnecting(clock.RealClock{}).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: tt.code, Body: &brokenBody{start.Add(tt.after), tt.event, reset}}, nil
				}))
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/api/v1/pods"+tt.query, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if took := time.Since(start); string(text) != tt.event || !errors.Is(err, tt.err) || took != tt.want {
					t.Errorf("%q, %v after %v; want %q, %v after %v", text, err, took, tt.event, tt.err, tt.want)
				}
			})
		})
	}
}

func TestClosedWatchReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		rt := newReconnecting(clock.RealClock{}).wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: &brokenBody{start, "", io.ErrUnexpectedEOF}}, nil
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = resp.Body.Close() })
		_, err = io.ReadAll(resp.Body)
		if took := time.Since(start); !errors.Is(err, io.ErrUnexpectedEOF) || took != 100*time.Millisecond {
			t.Errorf("the stream ended with %v after %v, want its own error when it was closed", err, took)
		}
	})
}
