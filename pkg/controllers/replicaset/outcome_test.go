package replicaset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/pkg/leadership"
)

func TestClassify(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	code := func(code int) error { return apierrors.NewGenericServerResponse(code, "post", pods, "a", "", 0, true) }
	transport := func(err error) error { return &url.Error{Op: "Post", URL: "https://127.0.0.1/", Err: err} }
	ending := apierrors.NewForbidden(pods, "a", errors.New("the namespace is terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		name string
		err  error
		want outcome
	}{
		{"answered", nil, done},
		{"quota, webhook or RBAC", apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), rejected},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), rejected},
		{"bad request", code(http.StatusBadRequest), rejected},
		{"unauthorized", apierrors.NewUnauthorized("who are you"), rejected},
		{"too large", apierrors.NewRequestEntityTooLargeError("big"), rejected},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), rejected},
		{"name taken", apierrors.NewAlreadyExists(pods, "a"), exists},
		{"name generation gave up", apierrors.NewGenerateNameConflict(pods, "a", 1), exists},
		{"precondition failed", apierrors.NewConflict(pods, "a", errors.New("uid")), conflict},
		{"not found", apierrors.NewNotFound(pods, "a"), missing},
		{"namespace terminating", ending, terminating},
		{"wrapped", fmt.Errorf("create: %w", apierrors.NewAlreadyExists(pods, "a")), exists},

		{"internal error", apierrors.NewInternalError(errors.New("etcd")), unknown},
		{"bad gateway", code(http.StatusBadGateway), unknown},
		{"unavailable", code(http.StatusServiceUnavailable), unknown},
		{"gateway timeout", apierrors.NewTimeoutError("too slow", 0), unknown},
		{"server timeout", apierrors.NewServerTimeout(pods, "create", 1), unknown},
		{"request timeout", code(http.StatusRequestTimeout), unknown},
		{"a status without a code", &apierrors.StatusError{ErrStatus: metav1.Status{Message: "?"}}, unknown},
		{"connection reset", transport(syscall.ECONNRESET), unknown},
		{"deadline", transport(context.DeadlineExceeded), unknown},
		{"answer that cannot be read", errors.New("unexpected EOF"), unknown},

		{"we are being stopped", transport(context.Canceled), unknown},
		{"cut by the fence", fmt.Errorf("no lease: %w", context.Canceled), unknown},

		{"a webhook that could not be asked", apierrors.NewInternalError(errors.New(`failed calling webhook "a.b.c": an error on the server`)), rejected},
		{"a webhook that refuses with 500", code(http.StatusInternalServerError), unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := classify(tt.err); got != tt.want {
				t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

// TestSend tells a write that never left from one whose answer is missing, whatever the last error was.
func TestSend(t *testing.T) {
	reset := func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }
	later := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusInternalServerError)
	}
	refuse := errors.New("this process may not write")
	for _, tt := range []struct {
		name    string
		answer  func(http.ResponseWriter) // of the first attempt; nil: nobody listens
		refused int                       // from this attempt on the transport refuses; 0: never
		http1   bool
		want    outcome
	}{
		{name: "nobody listens", want: unsent},
		{name: "the transport refuses", answer: reset, refused: 1, want: unsent},
		{name: "the connection breaks", answer: reset, want: unknown},
		{name: "the connection breaks, HTTP/1.1", answer: reset, http1: true, want: unknown},
		{name: "asked to come again, then nobody listens", answer: later, want: unknown},
		{name: "asked to come again, then the transport refuses", answer: later, refused: 2, want: unknown},
		{name: "answered", answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, want: rejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var server *httptest.Server
			server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				server.Listener.Close()
				w.Header().Set("Connection", "close")
				tt.answer(w)
			}))
			server.EnableHTTP2 = !tt.http1
			server.StartTLS()
			defer server.Close()
			if tt.answer == nil {
				server.Close()
			}
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			if tt.http1 {
				cfg.NextProtos = []string{"http/1.1"}
			}
			attempts := 0
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if attempts++; tt.refused > 0 && attempts >= tt.refused {
						return nil, refuse
					}
					return next.RoundTrip(req)
				})
			})
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := send(t.Context(), func(ctx context.Context) error {
				return client.CoreV1().Pods("default").Delete(ctx, "a", metav1.DeleteOptions{})
			})
			if got != tt.want {
				t.Errorf("outcome %d with error %v after %d attempts, want %d", got, err, attempts, tt.want)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestForUsers(t *testing.T) {
	reset := &url.Error{Op: "Post", URL: "https://127.0.0.1:4711/", Err: errors.New("stream 7 was reset")}
	for _, err := range []error{reset, fmt.Errorf("unable to delete pods: %w", reset), context.DeadlineExceeded} {
		if got := forUsers(err); got != "no answer from the API server" {
			t.Errorf("forUsers(%v) = %q", err, got)
		}
	}
	late := fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "https://127.0.0.1:6443", Err: &leadership.TimeoutError{Method: "POST", Path: "/", Most: 11 * time.Second}})
	if got, want := forUsers(late), "no answer from the API server in the 11s that a write has, admission may be slow"; got != want {
		t.Errorf("forUsers(%v) = %q, want %q", late, got, want)
	}
	if got := forUsers(errNoLabels); got != "unable to create pods, no labels" {
		t.Errorf("forUsers(errNoLabels) = %q", got)
	}
}
