package leadership

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

// busyServer returns 429 with a Retry-After.
type busyServer struct {
	sent, done int    // number of requests, and of the successful request
	wait       string // Retry-After
}

func (s *busyServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent++
	resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {s.wait}}, Body: io.NopCloser(strings.NewReader("later")), Request: req}
	if s.sent == s.done {
		resp.StatusCode, resp.Header = http.StatusCreated, http.Header{"Content-Type": {"application/json"}}
		resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Pod","apiVersion":"v1"}`))
	}
	return resp, nil
}

// create sends a write of a controller.
func (s *busyServer) create(p *process) error {
	client := fakeapi.Must(kubernetes.NewForConfig(&rest.Config{Host: "http://server", Transport: s, WrapTransport: p.fence.Wrap, QPS: -1}))
	_, err := client.CoreV1().Pods("default").Create(context.Background(), &corev1.Pod{}, metav1.CreateOptions{})
	return err
}

// A controller that waits for a Retry-After has no request in flight and does not delay the hand-over.
func TestHandOverDoesNotWaitForARetry(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		server, responded := &busyServer{wait: "30"}, make(chan error, 1)
		a := start(t, s, "a", func(p *process, _ *Config) {
			p.work = func(context.Context) error {
				err := <-responded
				responded <- err
				return nil
			}
		})
		go func() { responded <- server.create(a) }()
		sleep(time.Second)
		begun := time.Now()
		a.cancel()
		<-a.done
		if took := time.Since(begun); a.err != nil || s.holder() != "" || took > 0 {
			t.Errorf("Run = %v after %v, holder = %q; want nil at once, none", a.err, took, s.holder())
		}
		if err := <-responded; !apierrors.IsTooManyRequests(err) || server.sent != 1 {
			t.Errorf("the controller got %v after %d requests, want the first response", err, server.sent)
		}
	})
}

func TestRetryAfterWithinTerm(t *testing.T) {
	for wait, want := range map[string]time.Duration{
		"30":  time.Minute,
		"600": 2 * maxRetryAfter, // a longer wait would count as a stuck sync
	} {
		runWithLease(t, func(t *testing.T, s *leaseServer) {
			server, a := &busyServer{done: 3, wait: wait}, start(t, s, "a")
			begun := time.Now()
			err := server.create(a)
			if took := time.Since(begun); err != nil || server.sent != 3 || took <= want || took > want*3/2 {
				t.Errorf("%v after %d requests and %v, want nil after 3 and up to a half more than %v", err, server.sent, took, want)
			}
		})
	}
}
