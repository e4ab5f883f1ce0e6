package freshness

import (
	"errors"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/klog/v2"
)

// A list of everything in one answer is held in memory as it came and decoded, both at once, by every replica at the same time. Reflectors
// ask for that when they cannot stream.
const (
	firstPage   = 1000  // objects
	largestPage = 16000 // however often pages expire
)

// errExpired replaces the 410 Gone of a page that is not the first. After a 410 a reflector asks for everything in one answer; after any other error it
// begins a new list, which is paged again.
var errExpired = errors.New("the list expired while its pages were read")

// inPages returns a wrapper, to be put around the transport of the caches' client and of no other, that makes every plain LIST one of pages.
// Who asks must follow them, as reflectors do. The list is of what is in etcd at its beginning, because no other has pages. One that takes
// so long that the API server forgets it has larger pages the next time.
func inPages() func(http.RoundTripper) http.RoundTripper {
	p := &paged{limit: map[string]int{}}
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) { return p.roundTrip(next, req) })
	}
}

type paged struct {
	lock  sync.Mutex
	limit map[string]int // by request path; none: firstPage
}

func (p *paged) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	if req.Method != http.MethodGet || watches(req.URL) {
		return next.RoundTrip(req)
	}
	query.Set("limit", strconv.Itoa(p.size(req.URL.Path)))
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	out := req.Clone(req.Context())
	out.URL.RawQuery = query.Encode()
	resp, err := next.RoundTrip(out)
	if err != nil || query.Get("continue") == "" || resp.StatusCode != http.StatusGone {
		return resp, err
	}
	_ = resp.Body.Close()
	klog.FromContext(req.Context()).Info("A list expired while it was read, the next one has larger pages", "path", req.URL.Path, "limit", p.grow(req.URL.Path))
	return nil, errExpired
}

// size is how many objects a page has.
func (p *paged) size(path string) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return max(p.limit[path], firstPage)
}

// grow makes pages larger.
func (p *paged) grow(path string) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.limit[path] = min(2*max(p.limit[path], firstPage), largestPage)
	return p.limit[path]
}
