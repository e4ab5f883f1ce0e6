package outcome

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

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
		want    Outcome
	}{
		{name: "nobody listens", want: NotSent},
		{name: "the transport refuses", answer: reset, refused: 1, want: NotSent},
		{name: "the connection breaks", answer: reset, want: Unknown},
		{name: "the connection breaks, HTTP/1.1", answer: reset, http1: true, want: Unknown},
		{name: "asked to come again, then nobody listens", answer: later, want: Unknown},
		{name: "asked to come again, then the transport refuses", answer: later, refused: 2, want: Unknown},
		{name: "answered", answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, want: Rejected},
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
			got, err := Do(t.Context(), func(ctx context.Context) error {
				return client.CoreV1().Pods("default").Delete(ctx, "a", metav1.DeleteOptions{})
			})
			if got != tt.want {
				t.Errorf("meaning %s with error %v after %d attempts, want %s", got, err, attempts, tt.want)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
