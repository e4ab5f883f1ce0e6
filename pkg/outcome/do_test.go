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

	"minikcm/internal/fakeapi"
)

// The error of the last attempt does not show whether an earlier attempt was sent.
func TestDo(t *testing.T) {
	reset := func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }
	later := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusInternalServerError)
	}
	errRejected := errors.New("this process may not write")
	for _, tt := range []struct {
		name    string
		respond func(http.ResponseWriter) // of the first attempt; nil without a server
		rejects int                       // first attempt that the transport rejects; 0 for none
		http1   bool
		want    Outcome
	}{
		{name: "no server", want: NotSent},
		{name: "transport rejects", respond: reset, rejects: 1, want: NotSent},
		{name: "connection breaks", respond: reset, want: Unknown},
		{name: "connection breaks, HTTP/1.1", respond: reset, http1: true, want: Unknown},
		{name: "Retry-After, then no server", respond: later, want: Unknown},
		{name: "Retry-After, then transport rejects", respond: later, rejects: 2, want: Unknown},
		{name: "complete response", respond: func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, want: Rejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var server *httptest.Server
			server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				server.Listener.Close()
				w.Header().Set("Connection", "close")
				tt.respond(w)
			}))
			server.EnableHTTP2 = !tt.http1
			server.StartTLS()
			defer server.Close()
			if tt.respond == nil {
				server.Close()
			}
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			if tt.http1 {
				cfg.NextProtos = []string{"http/1.1"}
			}
			attempts := 0
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
					if attempts++; tt.rejects > 0 && attempts >= tt.rejects {
						return nil, errRejected
					}
					return next.RoundTrip(req)
				})
			})
			client := fakeapi.Must(kubernetes.NewForConfig(cfg))
			got, err := Do(t.Context(), func(ctx context.Context) error {
				return client.CoreV1().Pods("default").Delete(ctx, "a", metav1.DeleteOptions{})
			})
			if got != tt.want {
				t.Errorf("outcome %s with error %v after %d attempts, want %s", got, err, attempts, tt.want)
			}
		})
	}
}
