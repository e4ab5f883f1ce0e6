package freshness

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
)

func newTransport() *Transport { return NewTransport(clock.RealClock{}) }

// newPool returns the round tripper of a client whose API server is next.
func newPool(transport *Transport, next http.RoundTripper) http.RoundTripper {
	_, client, err := transport.Client(&rest.Config{Host: "https://server", Transport: next}, false)
	return fakeapi.Must(client, err).Transport
}

const server = "https://server/api/v1/pods"

func request(ctx context.Context, method, url string) *http.Request {
	return fakeapi.Must(http.NewRequestWithContext(ctx, method, url, nil))
}

func refuseConnection(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func TestRequestsWaitForConnection(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, tt := range []struct {
		name    string
		method  string
		query   string
		err     error // while the server is away, for one second
		wantErr error
		want    time.Duration // until the request returns
		ends    bool          // after that time
	}{
		{"connections are refused", http.MethodGet, "", refused, nil, time.Second, false},
		{"connections are refused, the request ends", http.MethodGet, "", refused, refused, 500 * time.Millisecond, true},
		{"connections to the HTTP proxy are refused", http.MethodGet, "", &net.OpError{Op: "proxyconnect", Err: refused}, nil, time.Second, false},
		{"list, connection breaks", http.MethodGet, "?resourceVersion=7", reset, reset, 0, false},
		{"streaming list, connection breaks", http.MethodGet, "?watch=true&sendInitialEvents=true&resourceVersion=7", reset, reset, 0, false},
		{"resumed watch, connection breaks", http.MethodGet, "?watch=true&resourceVersion=7", reset, nil, time.Second, false},
		{"resumed watch, connection is closed before the response", http.MethodGet, "?watch=true&resourceVersion=7", io.EOF, nil, time.Second, false},
		{"wrong certificate", http.MethodGet, "?watch=true&resourceVersion=7", x509.UnknownAuthorityError{}, x509.UnknownAuthorityError{}, 0, false},
		{"wrong certificate of the proxy", http.MethodGet, "", &net.OpError{Op: "proxyconnect", Err: x509.UnknownAuthorityError{}}, x509.UnknownAuthorityError{}, 0, false},
		{"write", http.MethodPost, "", refused, refused, 0, false},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			start := time.Now()
			rt := newPool(newTransport(), fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
				if time.Since(start) < time.Second {
					return nil, tt.err
				}
				return respond(http.StatusOK, ""), nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.ends {
				time.AfterFunc(tt.want, cancel)
			}
			_, err := rt.RoundTrip(request(ctx, tt.method, server+tt.query))
			if took := time.Since(start); !errors.Is(err, tt.wantErr) || took < tt.want || took > 3*tt.want {
				t.Errorf("returned %v after %v, want %v after %v, or somewhat later", err, took, tt.wantErr, tt.want)
			}
		})
	}
}

func respondAlways(code int, body string) fakeapi.RoundTripper {
	return func(*http.Request) (*http.Response, error) { return respond(code, body), nil }
}

// respond returns a response with a body.
func respond(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(body))}
}

// A reflector lists again after most errors. A request to a server that is about to be replaced is repeated instead.
func TestFailedWatchesAreRetried(t *testing.T) {
	const goesOn = "?watch=true&resourceVersion=7"
	for _, tt := range []struct {
		name     string
		query    string
		code     int
		lasts    time.Duration
		want     int // code
		requests int // at most
	}{
		{"watch, load balancer without servers", goesOn, 503, 10 * time.Second, 200, 8},
		{"streaming list", "?watch=true&sendInitialEvents=true", 503, 10 * time.Second, 200, 8},
		{"watch, for minutes: the reflector lists", goesOn, 503, time.Hour, 503, 40},
		{"lists that cannot be streamed", "?watch=true&sendInitialEvents=true", 422, time.Hour, 422, 1},
		{"watch, too many requests: the reflector waits", goesOn, 429, time.Hour, 429, 1},
		{"plain list: the reflector waits", "?limit=500", 503, time.Hour, 503, 1},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			start, requests := time.Now(), 0
			rt := newPool(newTransport(), fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
				if requests++; time.Since(start) < tt.lasts {
					return respond(tt.code, "status"), nil
				}
				return respond(http.StatusOK, ""), nil
			}))
			resp := get(t, rt, server+tt.query)
			if resp.StatusCode != tt.want || requests > tt.requests {
				t.Errorf("returned %d after %d requests, want %d after at most %d", resp.StatusCode, requests, tt.want, tt.requests)
			}
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK && string(body) != "status" || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("body %q, %v; want that of the API server", body, err)
			}
		})
	}
}

// A load balancer may be in place of the API server, or another server behind the API server.
// TestFailedWatchesAreRetried has the errors without an outage.
func TestErrorAfterOutageIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, back := 0, time.Now().Add(time.Minute)
		rt := newPool(newTransport(), fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
			if time.Now().Before(back) {
				return refuseConnection(nil)
			}
			return respond(http.StatusServiceUnavailable, ""), nil
		}))
		ctx := klog.NewContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
		resp, err := rt.RoundTrip(request(ctx, http.MethodGet, plainWatch))
		late := time.Since(back) - errorTimeout
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || late < -time.Second || late > 2*maxErrorPause {
			t.Errorf("response %v, error %v, %v after %v", resp, err, late, errorTimeout)
		}
		fakeapi.Want(t, "log lines about the outage", lines, 1)
	})
}

// client-go repeats streaming lists at once.
func TestRetriesAfterErrorsShareARate(t *testing.T) {
	const clients, types, lasts = 10, 100, 30 * time.Second
	for _, tt := range []struct {
		name, query string
		code        int
	}{
		{"watch", "resourceVersion=7", http.StatusServiceUnavailable},
		{"expired streaming list", "sendInitialEvents=true", http.StatusGone},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			var lock sync.Mutex
			var seconds [lasts / time.Second]int
			var group sync.WaitGroup
			start, transport := time.Now(), newTransport()
			server := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{})
				time.Sleep(50 * time.Millisecond)
				lock.Lock()
				defer lock.Unlock()
				if past := time.Since(start); past < lasts {
					seconds[past/time.Second]++
					return respond(tt.code, ""), nil
				}
				return respond(http.StatusOK, ""), nil
			})
			for range clients {
				client := newPool(transport, server)
				for i := range types {
					group.Go(func() {
						for time.Since(start) < lasts {
							get(t, client, fmt.Sprintf("https://server/apis/example.com/v1/type%d?watch=true&%s", i, tt.query))
						}
					})
				}
			}
			group.Wait()
			if most := slices.Max(seconds[1:]); most > retriesPerSecond+1 {
				t.Errorf("%d retries in a second, want at most %d", most, retriesPerSecond)
			}
		})
	}
}

// The API server refuses connections for 30 s. Then it accepts a connection per client within 20 ms.
func TestWatchesReconnectTogether(t *testing.T) {
	const clients, watches = 6, 60
	for _, tt := range []struct {
		name    string
		leaving int // requests per client that end one after the other, 10 s after their start
	}{
		{"all watches wait", 0},
		{"the probing requests end", 20},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			begun, transport := time.Now(), newTransport()
			back := begun.Add(30 * time.Second)
			var attempts [60]atomic.Int32 // connections by second
			var accepted atomic.Int32
			var held sync.WaitGroup
			for range clients {
				var connected atomic.Bool
				client := newPool(transport, fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
					if !connected.Load() {
						attempts[int(time.Since(begun).Seconds())].Add(1)
						if time.Now().Before(back) {
							return refuseConnection(req)
						}
						time.Sleep(20 * time.Millisecond)
						connected.Store(true)
						accepted.Add(1)
					}
					httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{})
					return respond(http.StatusOK, ""), nil
				}))
				for i := range watches {
					held.Go(func() {
						ctx := t.Context()
						if i < tt.leaving {
							ended, cancel := context.WithTimeout(ctx, 10*time.Second+time.Duration(i)*time.Millisecond)
							defer cancel()
							ctx = ended
						}
						if resp, err := client.RoundTrip(request(ctx, http.MethodGet, plainWatch)); i >= tt.leaving && (err != nil || resp.StatusCode != http.StatusOK) {
							t.Errorf("returned %v, %v", resp, err)
						}
					})
				}
			}
			held.Wait()
			for second := range attempts {
				if n := attempts[second].Load(); n > 27 { // the elector and the monitor make 3
					t.Errorf("%d connection attempts in second %d, want at most 27", n, second)
				}
			}
			if late := time.Since(back); late > 5*time.Second {
				t.Errorf("watches resumed %v after the return of the API server, want 5s at most", late)
			}
			fakeapi.Want(t, "connections, one per client", accepted.Load(), clients)
		})
	}
}

// An aggregated API without a response must not delay the watches of other types on the same connection.
func TestWatchWithoutResponseDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newPool(newTransport(), fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "widgets") {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return respond(http.StatusOK, ""), nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_, _ = rt.RoundTrip(request(ctx, http.MethodGet, "https://server/apis/example.com/v1/widgets?watch=true&resourceVersion=7"))
		}()
		synctest.Wait()
		start := time.Now()
		get(t, rt, plainWatch)
		if took := time.Since(start); took > time.Second {
			t.Errorf("a watch of pods was opened after %v, want 1s at most", took)
		}
	})
}

// A reflector lists again after an error, and after a stream that ended within a second.
func TestWatchesNeitherFailNorEndEarly(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, tt := range []struct {
		name   string
		query  string
		code   int
		after  time.Duration // the stream breaks
		event  string
		closed time.Duration // the reflector closes the stream; zero means never
		want   time.Duration // the end
		err    error
	}{
		{"broken at once", "?watch=true&resourceVersion=7", http.StatusOK, 0, "", 0, 1250 * time.Millisecond, nil},
		{"broken early, after an event", "?watch=true&resourceVersion=7", http.StatusOK, 300 * time.Millisecond, "pod", 0, 1250 * time.Millisecond, nil},
		{"broken later", "?watch=true&resourceVersion=7", http.StatusOK, time.Minute, "pod", 0, time.Minute, nil},
		{"broken after a streaming list", "?watch=true&sendInitialEvents=true", http.StatusOK, 300 * time.Millisecond, "pod", 0, 1550 * time.Millisecond, nil},
		{"broken and closed", "?watch=true&resourceVersion=7", http.StatusOK, 0, "", 100 * time.Millisecond, 100 * time.Millisecond, reset},
		{"list", "", http.StatusOK, 0, "", 0, 0, reset},
		{"rejected watch", "?watch=true", http.StatusTooManyRequests, 0, "", 0, 0, reset},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			start := time.Now()
			transport := newTransport()
			rt := newPool(transport, fakeapi.RoundTripper(func(*http.Request) (*http.Response, error) {
				body, stream := io.Pipe()
				time.AfterFunc(tt.after, func() {
					_, _ = io.WriteString(stream, tt.event)
					stream.CloseWithError(reset)
				})
				// One Read returns the event and the error.
				return &http.Response{StatusCode: tt.code, Body: struct {
					io.Reader
					io.Closer
				}{iotest.DataErrReader(body), body}}, nil
			}))
			resp := get(t, rt, server+tt.query)
			if tt.closed > 0 {
				time.AfterFunc(tt.closed, func() { _ = resp.Body.Close() })
			}
			text, err := io.ReadAll(resp.Body)
			if took := time.Since(start); string(text) != tt.event || !errors.Is(err, tt.err) || took != tt.want {
				t.Errorf("%q, %v after %v; want %q, %v after %v", text, err, took, tt.event, tt.err, tt.want)
			}
			if resp.Body.Close(); transport.reopenWatch(watchTarget{podResource, ""}, time.Now()) {
				t.Error("a closed watch was reopened")
			}
		})
	}
}

// A token may expire while the API server is away. A held request is sent with the current token.
func TestHeldRequestGetsCurrentToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) { fakeapi.NoError(t, os.WriteFile(token, []byte(text), 0o600)) }
	write("old")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var sent []string
		cfg := &rest.Config{Host: "https://server", BearerTokenFile: token, Transport: fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
			if sent = append(sent, req.Header.Get("Authorization")); time.Since(start) < 10*time.Minute {
				return refuseConnection(req)
			}
			return respond(http.StatusForbidden, ""), nil
		})}
		cfg, client, err := newTransport().Client(cfg, false)
		set := fakeapi.Must(kubernetes.NewForConfigAndClient(cfg, fakeapi.Must(client, err)))
		time.AfterFunc(time.Minute, func() { write("new") })
		if _, err := set.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil {
			t.Error("a forbidden watch has no error")
		}
		if first, last := sent[0], sent[len(sent)-1]; first != "Bearer old" || last != "Bearer new" {
			t.Errorf("it was first sent with %q and last with %q, want Bearer old and Bearer new", first, last)
		}
	})
}
