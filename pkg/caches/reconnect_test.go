package caches

import (
	"context"
	"errors"
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
		err     error // while the server is away, for one second
		wantErr error
		want    time.Duration // until the request returns
	}{
		{"nobody listens", http.MethodGet, refused, nil, time.Second},
		{"a connection that broke is for the caller", http.MethodGet, reset, reset, 0},
		{"only reads wait", http.MethodPost, refused, refused, 0},
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
				req, err := http.NewRequestWithContext(t.Context(), tt.method, "https://server/api/v1/pods", nil)
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
