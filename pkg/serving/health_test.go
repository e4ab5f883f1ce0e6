package serving

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/server/healthz"
)

func TestHealth(t *testing.T) {
	sick := errors.New("pods have not synced")
	mux := http.NewServeMux()
	healthz.InstallPathHandler(mux, "/readyz", checkers("/readyz", []Check{{"caches", func() error { return sick }}, {"leader", func() error { return nil }}})...)
	for _, tt := range []struct {
		name, url string
		code      int
		body      string
	}{
		{"all", "/readyz", 500, "[+]ping ok\n[-]caches failed: reason withheld\n[+]leader ok\nreadyz check failed\n"},
		{"excluded, verbose", "/readyz?exclude=caches&verbose", 200, "[+]ping ok\n[+]caches excluded: ok\n[+]leader ok\nreadyz check passed\n"},
		{"one that fails tells why", "/readyz/caches", 500, "internal server error: pods have not synced\n"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", tt.url, nil))
		if w.Code != tt.code || w.Body.String() != tt.body {
			t.Errorf("%s: GET %s = %d %q, want %d %q", tt.name, tt.url, w.Code, w.Body, tt.code, tt.body)
		}
	}
}
