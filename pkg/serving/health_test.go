package serving

import (
	"errors"
	"net/http/httptest"
	"testing"
)

func TestHealth(t *testing.T) {
	sick := errors.New("pods have not synced")
	c := newChecks([]Check{{"caches", func() error { return sick }}, {"leader", func() error { return nil }}})
	for _, tt := range []struct {
		name, url string
		code      int
		body      string
	}{
		{"all", "/readyz", 500, "[+]ping ok\n[-]caches failed: reason withheld\n[+]leader ok\nreadyz check failed\n"},
		{"verbose makes no difference to a failure", "/readyz?verbose", 500, "[+]ping ok\n[-]caches failed: reason withheld\n[+]leader ok\nreadyz check failed\n"},
		{"excluded", "/readyz?exclude=caches", 200, "ok"},
		{"excluded, verbose", "/readyz?exclude=caches&verbose", 200, "[+]ping ok\n[+]caches excluded: ok\n[+]leader ok\nreadyz check passed\n"},
		{"several and unknown excluded", "/readyz?exclude=caches&exclude=leader&exclude=x&verbose=1", 200, "[+]ping ok\n[+]caches excluded: ok\n[+]leader excluded: ok\nwarn: some health checks cannot be excluded: no matches for [\"x\"]\nreadyz check passed\n"},
		{"one that passes", "/readyz/leader", 200, "ok"},
		{"one that fails tells why", "/readyz/caches", 500, "internal server error: pods have not synced\n"},
		{"one that does not exist", "/readyz/x", 404, "404 page not found\n"},
	} {
		w := httptest.NewRecorder()
		c.handler("/readyz").ServeHTTP(w, httptest.NewRequest("GET", tt.url, nil))
		if w.Code != tt.code || w.Body.String() != tt.body {
			t.Errorf("%s: GET %s = %d %q, want %d %q", tt.name, tt.url, w.Code, w.Body, tt.code, tt.body)
		}
	}
}
