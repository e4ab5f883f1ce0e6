package freshness

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// streamPatience is how long a type's first streaming list may say nothing. Streams are known to stall without an error
// (kubernetes/kubernetes issue 140890); client-go then waits for ever.
const streamPatience = time.Minute

// mostStreams is how many streaming lists of a type in a row may end before they are complete, as behind a proxy that ends long responses.
const mostStreams = 2

// fallback refuses streaming lists of types whose streams do not bring a list, and client-go then sends a plain LIST. That is done if the first
// stream stalls, which is cut then, or if mostStreams in a row were not complete.
type fallback struct {
	lock    sync.Mutex
	synced  func(path string) bool // nil before the caches exist
	stalled map[string]bool        // by request path
	begun   map[string]int         // streams since a list was complete, by request path
}

// newFallback returns a fallback that has seen no stream yet.
func newFallback() *fallback { return &fallback{stalled: map[string]bool{}, begun: map[string]int{}} }

func (f *fallback) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		path := req.URL.Path
		if req.URL.Query().Get("sendInitialEvents") != "true" {
			if resumes(req.URL) { // from the version of a complete list
				f.note(func() { delete(f.begun, path) })
			}
			return next.RoundTrip(req)
		}
		if f.refuses(path) {
			klog.FromContext(req.Context()).V(2).Info("Streaming lists stall or are cut, using a plain list", "path", path)
			return refuseStream(req), nil
		}
		ctx, cancel := context.WithCancel(req.Context())
		silent := time.AfterFunc(streamPatience, func() { f.cut(ctx, cancel, path) })
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			silent.Stop()
			cancel()
			return nil, err
		}
		if resp.StatusCode == http.StatusOK {
			f.note(func() { f.begun[path]++ })
		}
		resp.Body = &firstStream{ReadCloser: resp.Body, silent: silent, cancel: cancel}
		return resp, nil
	})
}

// cut ends a stream that says nothing, unless it has filled its cache or has just ended.
func (f *fallback) cut(ctx context.Context, cancel context.CancelFunc, path string) {
	if ctx.Err() != nil || f.isSynced(path) {
		return
	}
	f.note(func() { f.stalled[path] = true })
	klog.FromContext(ctx).Info("Streaming list says nothing, falling back to a plain list", "path", path, "for", streamPatience)
	cancel()
}

func (f *fallback) isSynced(path string) bool {
	f.lock.Lock()
	synced := f.synced
	f.lock.Unlock() // the caches have locks of their own
	return synced != nil && synced(path)
}

// refuses reports whether a type has to use a plain LIST.
func (f *fallback) refuses(path string) bool {
	synced := f.isSynced(path)
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.begun[path] >= mostStreams || !synced && f.stalled[path]
}

// note changes what is known under the lock.
func (f *fallback) note(change func()) {
	f.lock.Lock()
	defer f.lock.Unlock()
	change()
}

// forget drops what is known of a type.
func (f *fallback) forget(resource schema.GroupVersionResource) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, path := range slices.Concat(slices.Collect(maps.Keys(f.stalled)), slices.Collect(maps.Keys(f.begun))) {
		if target, _ := collection(path); target == (watchTarget{GroupVersionResource: resource}) {
			delete(f.stalled, path)
			delete(f.begun, path)
		}
	}
}

// attach tells the fallback how to find out whether the cache behind a request path is filled.
func (f *fallback) attach(synced func(path string) bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.synced = synced
}

// refuseStream answers as an API server does that cannot stream lists.
func refuseStream(req *http.Request) *http.Response {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     http.StatusUnprocessableEntity,
		Reason:   metav1.StatusReasonInvalid,
		Message:  "streaming lists of this type stall or are cut, use a plain list",
	}
	body, _ := json.Marshal(status) // a struct of strings and numbers
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Status: "422 Unprocessable Entity",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}},
		Body:    io.NopCloser(bytes.NewReader(body)),
		Request: req,
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// firstStream is the body of a first streaming list.
type firstStream struct {
	io.ReadCloser
	silent *time.Timer // cuts it; every byte sets it back
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (s *firstStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 {
		s.silent.Reset(streamPatience)
	}
	return n, err
}

// Close implements io.Closer.
func (s *firstStream) Close() error {
	defer s.cancel()
	defer s.silent.Stop()
	return s.ReadCloser.Close()
}
