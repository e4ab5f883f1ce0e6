package namespace

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"minikcm/internal/fakeapi"
)

// The response to a deletecollection has every deleted object.
func TestAnswersToDeletesAreNotHeldInMemory(t *testing.T) {
	for _, tt := range []struct {
		name, method, query, want string
		asIs                      bool // in the requested form
	}{
		{"page of a type that can be listed", http.MethodDelete, "?limit=500", "", false},
		{"type that cannot be listed", http.MethodDelete, "", "", true},
		{"list", http.MethodGet, "?limit=500", "objects", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequest(tt.method, "https://server/apis/a.io/v1/namespaces/test/things"+tt.query, nil)
			req.Header.Set("Accept", "application/json")
			resp, err := discardBodies{fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
				if asIs := req.Header.Get("Accept") == "application/json"; asIs != tt.asIs {
					t.Errorf("asked for %s", req.Header.Get("Accept"))
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("objects"))}, nil
			})}.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != tt.want {
				t.Errorf("body %q, %v, want %q", body, err, tt.want)
			}
		})
	}
}
