package freshness

import (
	"errors"
	"net/http"
	"strconv"
)

// listLimit is the number of objects in a page. Every replica would hold a list in one response twice, encoded and decoded.
// Reflectors send such a list when they cannot stream.
const listLimit = 2000

// errExpired replaces the 410 Gone of a page that is not the first. After a 410 a reflector asks for everything in one answer; after any other error it
// begins a new list, which is paged again.
var errExpired = errors.New("the list expired while its pages were read")

// inPages is a wrapper, to be put around the transport of the caches' client and of no other, that makes every plain LIST one of pages.
// The caller must follow them, as reflectors do. The list is of the objects in etcd at its beginning, because no other has pages.
func inPages(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodGet || watches(req.URL) {
			return next.RoundTrip(req)
		}
		query := req.URL.Query()
		query.Set("limit", strconv.Itoa(listLimit))
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
		out := req.Clone(req.Context())
		out.URL.RawQuery = query.Encode()
		resp, err := next.RoundTrip(out)
		if err != nil || query.Get("continue") == "" || resp.StatusCode != http.StatusGone {
			return resp, err
		}
		_ = resp.Body.Close()
		return nil, errExpired
	})
}
