package freshness

import (
	"bytes"
	"context"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

const (
	// listIdleTimeout is the longest time without a byte in a streaming list that is not complete. Streams are
	// known to stall without an error (kubernetes/kubernetes issue 140890). client-go then waits for ever.
	listIdleTimeout = time.Minute
	// watchIdleTimeout is the longest time without a byte in other watches. Bookmarks come every two minutes,
	// and every minute if some client makes consistent lists of the type.
	watchIdleTimeout = 3 * time.Minute
	// minWatchAge is the age of a watch before its end is reported. client-go v0.37 (VeryShortWatchError)
	// lists again, with back-off, after a watch that ended within 1 s and delivered nothing. Storing a
	// streamed list takes a little longer.
	minWatchAge = 1250 * time.Millisecond
)

// endOfList is part of the bookmark that ends a streaming list, in JSON, CBOR and protobuf alike.
var endOfList = []byte(metav1.InitialEventsAnnotationKey)

// activity is the state of the requests of one target. Reflectors send one request at a time. The state of a
// type that is no longer watched, some hundred bytes, is kept.
type activity struct {
	watch    *stream         // open, or requested
	pool     *connectionPool // of the last request
	lastByte time.Time       // Of any watch or list. Zero before the first byte.
	// lastProgress is the time of the last connection, response or byte of a request. A request that waits
	// for a connection has no progress.
	lastProgress time.Time
	// listingSince is the start of the list under way, over all attempts. Zero once the list is complete.
	listingSince time.Time
	// incompleteStreams counts the streaming lists since the last complete list. A stalled stream counts as
	// maxIncompleteStreams.
	incompleteStreams int
	shortWatches      int // number of next watches that are short
}

func (t *Transport) activityOf(target watchTarget) activity {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.activities[target]
}

func (t *Transport) updateActivity(target watchTarget, change func(a *activity, now time.Time)) {
	t.lock.Lock()
	defer t.lock.Unlock()
	a := t.activities[target]
	change(&a, t.clock.Now())
	t.activities[target] = a
}

// reopenWatch ends the watch of one target, which its reflector resumes. The next watches are short. If the
// client of the last request has received nothing after since, its connections are closed too, so that the
// next watch takes another connection. The connections are closed even if no watch is open, as between two
// attempts of a watch that is rejected.
func (t *Transport) reopenWatch(target watchTarget, since time.Time) (ended bool) {
	var was activity
	t.updateActivity(target, func(a *activity, _ time.Time) {
		was, a.watch = *a, nil
		a.shortWatches = 2 // a proxy may end the first watch
		if a.pool != nil && a.pool.lastByte.After(since) {
			was.pool = nil
		}
	})
	if was.pool != nil {
		was.pool.dialer.CloseAll() // first: the next requests must not find these connections
	}
	if was.watch != nil {
		was.watch.cut()
	}
	return was.watch != nil
}

// stream is the response to a request, from the time at which the request is sent.
type stream struct {
	io.ReadCloser
	informerRequest
	pool  *connectionPool
	ctx   context.Context // ends with Close
	close context.CancelFunc
	cut   context.CancelFunc

	accepted    bool // the response has a body of the type
	earliestEnd time.Time
	silence     *time.Timer // without effect on a list
	listed      bool        // the list at the beginning of the stream is complete, or there is none
	tail        []byte      // the last bytes of the list
	idleTimeout time.Duration
}

// newStream registers a request that is about to be sent with the returned context.
func (p *connectionPool) newStream(ctx context.Context, r informerRequest) (*stream, context.Context) {
	s := &stream{informerRequest: r, pool: p, earliestEnd: p.clock.Now().Add(minWatchAge), listed: !r.streams, idleTimeout: watchIdleTimeout}
	if r.streams {
		s.idleTimeout = listIdleTimeout
	}
	s.ctx, s.close = context.WithCancel(ctx)
	ctx, s.cut = context.WithCancel(s.ctx)
	s.silence = time.AfterFunc(s.idleTimeout, s.cutSilent)
	p.updateActivity(r.watchTarget, func(a *activity, now time.Time) {
		a.pool = p
		switch {
		case r.resumes(): // from the version of a complete list
			a.listingSince, a.incompleteStreams = time.Time{}, 0
		case a.listingSince.IsZero():
			a.listingSince = now
		}
		if r.watch {
			a.watch = s
		}
	})
	return s, ctx
}

// cutSilent cuts a watch without a byte. The reflector of a complete list resumes the watch. The reflector of an
// incomplete list falls back to a plain list.
func (s *stream) cutSilent() {
	if !s.watch || s.ctx.Err() != nil {
		return
	}
	klog.FromContext(s.ctx).V(2).Info("Cutting a silent watch", "watch", s.watchTarget.String(), "streamsList", s.streams)
	if s.pool.activityOf(s.watchTarget).listingSince.IsZero() { // the list is complete
		s.pool.reopenWatch(s.watchTarget, s.pool.clock.Now().Add(-watchIdleTimeout))
		return
	}
	s.pool.updateActivity(s.watchTarget, func(a *activity, _ time.Time) { a.incompleteStreams = maxIncompleteStreams })
	s.cut() // only this watch: the connections may carry slow lists of other types
}

// Read implements io.Reader. A watch ends neither early nor with an error, so its reflector resumes the watch.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 && s.accepted {
		s.pool.updateActivity(s.watchTarget, func(a *activity, now time.Time) { a.lastByte, a.lastProgress, s.pool.lastByte = now, now, now })
		if s.watch {
			s.readWatch(p[:n])
		}
	}
	switch {
	case err == nil || !s.watch || !s.accepted || s.ctx.Err() != nil:
		return n, err
	case n > 0:
		return n, nil // the next Read fails again
	case timing.Sleep(s.ctx, s.pool.clock, s.earliestEnd.Sub(s.pool.clock.Now())):
		return 0, io.EOF
	}
	return 0, err
}

// readWatch looks for the end of the list in the next bytes of a watch.
func (s *stream) readWatch(p []byte) {
	if !s.listed {
		s.earliestEnd = s.pool.clock.Now().Add(minWatchAge)
		s.tail = append(s.tail, p...)
		if bytes.Contains(s.tail, endOfList) {
			s.listed, s.tail, s.idleTimeout = true, nil, watchIdleTimeout
			s.pool.updateActivity(s.watchTarget, func(a *activity, _ time.Time) { a.listingSince = time.Time{} })
		} else {
			s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-len(endOfList)):]...)
		}
	}
	s.silence.Reset(s.idleTimeout)
}

// Close implements io.Closer.
func (s *stream) Close() error {
	defer s.endStream()
	return s.ReadCloser.Close()
}

func (s *stream) endStream() {
	s.close()
	s.silence.Stop()
	s.pool.updateActivity(s.watchTarget, func(a *activity, _ time.Time) {
		if a.watch == s {
			a.watch = nil
		}
	})
}
