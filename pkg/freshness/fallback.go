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

// streamPatience is the longest time without a byte in a streaming list that is not complete. Streams are known to stall without an error
// (kubernetes/kubernetes issue 140890); client-go then waits for ever.
const streamPatience = time.Minute

// mostStreams is how many streaming lists of a type in a row may end before they are complete, as behind a proxy that ends long responses.
const mostStreams = 2

// endOfList is part of the bookmark that ends a streaming list, in JSON, CBOR and protobuf alike.
var endOfList = []byte(metav1.InitialEventsAnnotationKey)

// fallback refuses streaming lists of types whose streams do not bring a list, and client-go then sends a plain LIST. That is done if a stream
// stalls, which is cut then, or if mostStreams in a row were not complete, until the type has a list.
type fallback struct {
	lock       sync.Mutex
	incomplete map[string]int // streams since a list was complete, by request path; mostStreams if one stalled
}

// newFallback returns a fallback that has seen no stream yet.
func newFallback() *fallback { return &fallback{incomplete: map[string]int{}} }

func (f *fallback) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		path := req.URL.Path
		if req.URL.Query().Get("sendInitialEvents") != "true" {
			if resumes(req.URL) { // from the version of a complete list
				f.note(func() { delete(f.incomplete, path) })
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
			f.note(func() { f.incomplete[path]++ })
		}
		resp.Body = &listStream{ReadCloser: resp.Body, silent: silent, cancel: cancel}
		return resp, nil
	})
}

// cut ends a stream that has stalled, unless it has just ended.
func (f *fallback) cut(ctx context.Context, cancel context.CancelFunc, path string) {
	if ctx.Err() != nil {
		return
	}
	f.note(func() { f.incomplete[path] = mostStreams })
	klog.FromContext(ctx).Info("Streaming list stalls, falling back to a plain list", "path", path, "for", streamPatience)
	cancel()
}

// refuses reports whether a type has to use a plain LIST.
func (f *fallback) refuses(path string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.incomplete[path] >= mostStreams
}

// note changes what is known under the lock.
func (f *fallback) note(change func()) {
	f.lock.Lock()
	defer f.lock.Unlock()
	change()
}

// forget drops what is known of a type.
func (f *fallback) forget(resource schema.GroupVersionResource) {
	f.note(func() {
		maps.DeleteFunc(f.incomplete, func(path string, _ int) bool {
			target, _ := collection(path)
			return target == watchTarget{GroupVersionResource: resource}
		})
	})
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

// listStream is the body of a streaming list and of the watch that follows.
type listStream struct {
	io.ReadCloser
	silent   *time.Timer // cuts a list that stalls
	complete bool
	tail     []byte // the last bytes of the list
	cancel   context.CancelFunc
}

// Read implements io.Reader.
func (s *listStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 && !s.complete {
		s.silent.Reset(streamPatience)
		if s.complete = s.ends(p[:n]); s.complete {
			s.silent.Stop()
		}
	}
	return n, err
}

// ends reports whether the end of the list is in the next bytes, or began in those before.
func (s *listStream) ends(p []byte) bool {
	seam := append(s.tail, p[:min(len(p), len(endOfList))]...)
	if bytes.Contains(seam, endOfList) || bytes.Contains(p, endOfList) {
		return true
	}
	if len(p) > len(endOfList) {
		seam = append(s.tail[:0], p[len(p)-len(endOfList):]...)
	}
	s.tail = seam[max(0, len(seam)-len(endOfList)):]
	return false
}

// Close implements io.Closer.
func (s *listStream) Close() error {
	defer s.cancel()
	defer s.silent.Stop()
	return s.ReadCloser.Close()
}
