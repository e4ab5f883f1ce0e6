package caches

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
				rt := Reconnecting(clock.RealClock{})(roundTripper(func(*http.Request) (*http.Response, error) {
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

func TestReconnectingEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := Reconnecting(clock.RealClock{})(roundTripper(func(*http.Request) (*http.Response, error) {
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
				rt := Reconnecting(clock.RealClock{})(roundTripper(func(*http.Request) (*http.Response, error) {
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
		rt := Reconnecting(clock.RealClock{})(roundTripper(func(*http.Request) (*http.Response, error) {
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
