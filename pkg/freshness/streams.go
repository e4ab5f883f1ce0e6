package freshness

import (
	"bytes"
	"context"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

const (
	// streamPatience is the longest time without a byte in a streaming list that is not complete. Streams
	// are known to stall without an error (kubernetes/kubernetes issue 140890). client-go then waits for
	// ever.
	streamPatience = time.Minute
	// minWatchAge is the age of a watch before its end is reported. client-go v0.37 (VeryShortWatchError)
	// lists again, with back-off, after a watch that ended within 1 s and delivered nothing. Storing a
	// streamed list takes a little longer.
	minWatchAge = 1250 * time.Millisecond
)

// endOfList is part of the bookmark that ends a streaming list, in JSON, CBOR and protobuf alike.
var endOfList = []byte(metav1.InitialEventsAnnotationKey)

// activity is the state of the requests of one target.
type activity struct {
	open     bool      // A watch is open, or requested.
	lastByte time.Time // Of any watch or list. Zero before the first byte.
	// listingSince is the start of the list under way, over all attempts. Zero once the list is complete.
	listingSince time.Time
	// lastProgress is the time of the last connection, response or byte of a request. A request that waits
	// for a connection has no progress.
	lastProgress time.Time
	pool         *connectionPool // Of the last request.
	// incompleteStreams counts the streaming lists since the last complete list. A stalled stream counts as
	// maxIncompleteStreams.
	incompleteStreams int
	shortWatches      int // To come.
}

// activityOf returns the activity of one target, including watches of all namespaces.
func (t *Transport) activityOf(target watchTarget) activity {
	t.lock.Lock()
	defer t.lock.Unlock()
	var sum activity
	for other, a := range t.types {
		if other.includes(target) {
			sum.lastByte, sum.listingSince = timing.Later(sum.lastByte, a.lastByte), timing.Later(sum.listingSince, a.listingSince)
			sum.lastProgress = timing.Later(sum.lastProgress, a.lastProgress)
			sum.incompleteStreams = max(sum.incompleteStreams, a.incompleteStreams)
		}
	}
	for s := range t.open {
		sum.open = sum.open || s.includes(target)
	}
	return sum
}

func (t *Transport) updateActivity(target watchTarget, change func(a *activity, now time.Time)) {
	t.lock.Lock()
	defer t.lock.Unlock()
	a := t.types[target]
	change(&a, t.clock.Now())
	t.types[target] = a
}

func (t *Transport) recordProgress(target watchTarget) {
	t.updateActivity(target, func(a *activity, now time.Time) { a.lastProgress = now })
}

// LastActivity returns the time of the last byte of a type, on watches and lists of all namespaces. It
// returns zero before the first byte.
func (t *Transport) LastActivity(resource schema.GroupVersionResource) time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.types[watchTarget{GroupVersionResource: resource}].lastByte
}

// Reopen ends the watch of a type in all namespaces. Its reflector resumes the watch, on another connection
// if the client has received nothing since.
func (t *Transport) Reopen(resource schema.GroupVersionResource, since time.Time) {
	t.reopenWatches(watchTarget{GroupVersionResource: resource}, since)
}

// reopenWatches ends the watches of one target, which their reflectors resume. The next watches are short.
// If the client of the last request has received nothing after since, its connections are closed too, so
// that the next watch takes another connection. The connections are closed even if no watch is open, as
// between two attempts of a watch that is rejected.
func (t *Transport) reopenWatches(target watchTarget, since time.Time) (ended bool) {
	t.lock.Lock()
	for s := range t.open {
		if s.includes(target) {
			ended = true
			delete(t.open, s)
			defer s.cut()
		}
	}
	silent := map[*connectionPool]bool{}
	for other, a := range t.types {
		if other.includes(target) && a.pool != nil {
			a.shortWatches = 2 // A proxy may end the first watch.
			t.types[other] = a
			if !a.pool.lastByte.After(since) {
				silent[a.pool] = true
			}
		}
	}
	t.lock.Unlock()
	if ended {
		t.metrics.reopened.WithLabelValues(target.labels()...).Inc()
	}
	for pool := range silent {
		defer pool.dialer.CloseAll() // Deferred last, to run first: the next requests must not find these connections.
	}
	return ended
}

// Forget drops the state and the metrics of a type that is no longer watched. Types may come and go by the thousand.
func (t *Transport) Forget(resource schema.GroupVersionResource) {
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.types, watchTarget{GroupVersionResource: resource})
	for other := range t.types {
		if other.Resource == resource.Resource { // Series do not name the group and the version.
			return
		}
	}
	t.metrics.dropSeries(resource.Resource)
}

// stream is the response to a request, from the time at which the request is sent.
type stream struct {
	io.ReadCloser
	informerRequest
	pool  *connectionPool
	ctx   context.Context // Ends with Close.
	close context.CancelFunc
	cut   context.CancelFunc

	accepted    bool // The response has a body of the type.
	earliestEnd time.Time

	complete bool // The list at the beginning of the stream.
	stall    *time.Timer
	tail     []byte // The last bytes of the list.
}

// newStream registers a request that is about to be sent with the returned context.
func (p *connectionPool) newStream(ctx context.Context, r informerRequest) (*stream, context.Context) {
	s := &stream{informerRequest: r, pool: p, earliestEnd: p.clock.Now().Add(minWatchAge), complete: !r.watch || r.resumes}
	s.ctx, s.close = context.WithCancel(ctx)
	ctx, s.cut = context.WithCancel(s.ctx)
	s.stall = time.AfterFunc(streamPatience, s.cutStalled)
	if !r.streams {
		s.stall.Stop()
	}
	p.updateActivity(r.watchTarget, func(a *activity, now time.Time) {
		a.pool = p
		switch {
		case r.resumes: // From the version of a complete list.
			a.listingSince, a.incompleteStreams = time.Time{}, 0
		case a.listingSince.IsZero():
			a.listingSince = now
		}
		if r.watch {
			p.open[s] = struct{}{}
		}
	})
	return s, ctx
}

// cutStalled cuts a streaming list.
func (s *stream) cutStalled() {
	if s.ctx.Err() != nil {
		return
	}
	s.pool.updateActivity(s.watchTarget, func(a *activity, _ time.Time) { a.incompleteStreams = maxIncompleteStreams })
	klog.FromContext(s.ctx).Info("Streaming list stalls, falling back to a plain list", "watch", s.watchTarget.String(), "duration", streamPatience)
	s.cut()
}

// Read implements io.Reader. A watch ends neither early nor with an error, so its reflector resumes the watch.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 && s.accepted {
		s.pool.updateActivity(s.watchTarget, func(a *activity, now time.Time) { a.lastByte, a.lastProgress, s.pool.lastByte = now, now, now })
		s.readList(p[:n])
	}
	switch {
	case err == nil || !s.watch || !s.accepted || s.ctx.Err() != nil:
		return n, err
	case n > 0:
		return n, nil // The next Read fails again.
	case timing.Sleep(s.ctx, s.pool.clock, s.earliestEnd.Sub(s.pool.clock.Now())):
		return 0, io.EOF
	}
	return 0, err
}

// readList looks for the end of the list in the next bytes.
func (s *stream) readList(p []byte) {
	if s.complete {
		return
	}
	s.earliestEnd = s.pool.clock.Now().Add(minWatchAge)
	if !s.streams {
		return
	}
	s.stall.Reset(streamPatience)
	seam := append(s.tail, p[:min(len(p), len(endOfList))]...)
	if s.complete = bytes.Contains(seam, endOfList) || bytes.Contains(p, endOfList); s.complete {
		s.stall.Stop()
		s.pool.updateActivity(s.watchTarget, func(a *activity, _ time.Time) { a.listingSince = time.Time{} })
		return
	}
	if len(p) > len(endOfList) {
		seam = append(s.tail[:0], p[len(p)-len(endOfList):]...)
	}
	s.tail = seam[max(0, len(seam)-len(endOfList)):]
}

// Close implements io.Closer.
func (s *stream) Close() error {
	defer s.endStream()
	return s.ReadCloser.Close()
}

func (s *stream) endStream() {
	s.close()
	s.stall.Stop()
	s.pool.lock.Lock()
	defer s.pool.lock.Unlock()
	delete(s.pool.open, s)
}
