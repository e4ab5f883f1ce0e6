package freshness

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// streamPatience is how long a type's first streaming list may say nothing. Streams are known to stall without an error
// (kubernetes/kubernetes issue 140890); client-go then waits for ever.
const streamPatience = time.Minute

// fallback makes a type whose first streaming list stalls use a plain LIST instead: it cuts the stream and refuses the next one,
// which client-go answers by listing.
type fallback struct {
	clock   clock.WithTicker
	lock    sync.Mutex
	synced  func(path string) bool // nil before the caches exist
	stalled map[string]bool        // by request path
}

// newFallback returns a fallback that has seen no stream yet.
func newFallback(clk clock.WithTicker) *fallback {
	return &fallback{clock: clk, stalled: map[string]bool{}}
}

func (f *fallback) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Query().Get("sendInitialEvents") != "true" || f.isSynced(req.URL.Path) {
			return next.RoundTrip(req)
		}
		if f.isStalled(req.URL.Path) {
			return refuseStream(req), nil
		}
		ctx, cancel := context.WithCancel(req.Context())
		body := &heardBody{clock: f.clock, asked: f.clock.Now(), cancel: cancel}
		go f.watchOver(ctx, body, req.URL.Path)
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			cancel()
			return nil, err
		}
		body.ReadCloser, resp.Body = resp.Body, body
		return resp, nil
	})
}

// watchOver cuts a stream that says nothing before it has filled its cache. It returns when the stream ends.
func (f *fallback) watchOver(ctx context.Context, body *heardBody, path string) {
	patience := f.clock.NewTimer(streamPatience)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-patience.C():
		}
		if f.isSynced(path) {
			return
		}
		if left := streamPatience - body.silence(); left > 0 {
			patience.Reset(left)
			continue
		}
		f.lock.Lock()
		f.stalled[path] = true
		f.lock.Unlock()
		klog.FromContext(ctx).Info("Streaming list says nothing, falling back to a plain list", "path", path, "for", streamPatience)
		body.cancel()
		return
	}
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

// heardBody knows when the last byte came, and cancels when it is closed.
type heardBody struct {
	io.ReadCloser // set when there is an answer
	clock         clock.PassiveClock
	asked         time.Time
	cancel        context.CancelFunc
	heard         atomic.Int64 // ns after it was asked for; 0: nothing yet
}

// silence is the time since the last byte, or since it was asked for.
func (b *heardBody) silence() time.Duration {
	return b.clock.Since(b.asked) - time.Duration(b.heard.Load())
}

// Read implements io.Reader.
func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.heard.Store(int64(b.clock.Since(b.asked)))
	}
	return n, err
}

// Close implements io.Closer.
func (b *heardBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
