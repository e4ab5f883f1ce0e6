package freshness

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// streamPatience is how long a type's first streaming list may say nothing. Streams are known to stall without an error
// (kubernetes/kubernetes issue 140890); client-go then waits for ever.
const streamPatience = time.Minute

// fallback makes a type whose first streaming list stalls use a plain LIST instead: it cuts the stream and refuses the next one,
// which client-go answers by listing.
type fallback struct {
	lock    sync.Mutex
	synced  func(path string) bool // nil before the caches exist
	stalled map[string]bool        // by request path
}

// newFallback returns a fallback that has seen no stream yet.
func newFallback() *fallback { return &fallback{stalled: map[string]bool{}} }

func (f *fallback) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Query().Get("sendInitialEvents") != "true" || f.isSynced(req.URL.Path) {
			return next.RoundTrip(req)
		}
		if f.isStalled(req.URL.Path) {
			return refuseStream(req), nil
		}
		ctx, cancel := context.WithCancel(req.Context())
		silent := time.AfterFunc(streamPatience, func() { f.cut(ctx, cancel, req.URL.Path) })
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			silent.Stop()
			cancel()
			return nil, err
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
	f.lock.Lock()
	f.stalled[path] = true
	f.lock.Unlock()
	klog.FromContext(ctx).Info("Streaming list says nothing, falling back to a plain list", "path", path, "for", streamPatience)
	cancel()
}

func (f *fallback) isSynced(path string) bool {
	f.lock.Lock()
	synced := f.synced
	f.lock.Unlock() // the caches have locks of their own
	return synced != nil && synced(path)
}

func (f *fallback) isStalled(path string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.stalled[path]
}

// forget drops what is known of a type.
func (f *fallback) forget(resource schema.GroupVersionResource) {
	f.lock.Lock()
	defer f.lock.Unlock()
	maps.DeleteFunc(f.stalled, func(path string, _ bool) bool {
		target, _ := collection(path)
		return target == watchTarget{GroupVersionResource: resource}
	})
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
		Message:  "the streaming list of this type stalled, use a plain list",
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
