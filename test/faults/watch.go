package faults

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// WatchFault is a freeze or a slow-down of watch streams, until it is ended by Thaw or Cut.
type WatchFault struct {
	watches *watches
	match   Match
	lag     time.Duration
	frozen  bool
}

// Thaw ends the fault: each stream gets its backlog, in order and at once.
func (f *WatchFault) Thaw() { f.end(false) }

// Cut ends the fault and resets the streams it covers: their backlog is lost.
func (f *WatchFault) Cut() { f.end(true) }

func (f *WatchFault) end(cut bool) {
	f.watches.lock.Lock()
	defer f.watches.lock.Unlock()
	if !slices.Contains(f.watches.faults, f) {
		return // ended before
	}
	f.watches.faults = slices.DeleteFunc(f.watches.faults, func(other *WatchFault) bool { return other == f })
	for s := range f.watches.open {
		if cut && f.match.matches(s.info, s.request) {
			s.cut = true
		}
		s.notify()
	}
}

// watches is every open watch stream and the faults on them. Its lock guards its streams too.
type watches struct {
	spawn func(func()) bool

	lock   sync.Mutex
	open   map[*stream]struct{}
	faults []*WatchFault
}

func (w *watches) add(f *WatchFault) *WatchFault {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.faults = append(w.faults, f)
	for s := range w.open {
		s.notify() // one that waits for a shorter lag must look again
	}
	return f
}

// cut resets the open streams that match and tells how many.
func (w *watches) cut(m Match) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	n := 0
	for s := range w.open {
		if m.matches(s.info, s.request) {
			s.cut = true
			s.notify()
			n++
		}
	}
	return n
}

func (w *watches) count(m Match) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	n := 0
	for s := range w.open {
		if m.matches(s.info, s.request) {
			n++
		}
	}
	return n
}

// chunk is bytes as they came from the server.
type chunk struct {
	data    []byte
	arrived time.Time
}

// stream is the body of one watch answer. It takes in all the server sends at once, without bound, and gives it out
// as the faults allow.
type stream struct {
	watches *watches
	ctx     context.Context // of the client's request
	info    info
	request *http.Request
	source  io.ReadCloser
	wake    chan struct{}

	chunks []chunk
	err    error // how the source ended
	cut    bool
}

func (w *watches) start(ctx context.Context, i info, client *http.Request, source io.ReadCloser) *stream {
	s := &stream{watches: w, ctx: ctx, info: i, request: client, source: source, wake: make(chan struct{}, 1)}
	w.lock.Lock()
	w.open[s] = struct{}{}
	w.lock.Unlock()
	w.spawn(s.pump) // if the proxy has ended, so has the stream's context
	return s
}

// pump empties the source until it ends. Closing the source ends it.
func (s *stream) pump() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := s.source.Read(buffer)
		s.watches.lock.Lock()
		if n > 0 {
			s.chunks = append(s.chunks, chunk{slices.Clone(buffer[:n]), time.Now()})
		}
		s.err = err
		s.notify()
		s.watches.lock.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Read blocks until the faults let bytes or the end through, or the client has left.
func (s *stream) Read(p []byte) (int, error) {
	for {
		s.watches.lock.Lock()
		n, wait, err := s.take(p, time.Now())
		s.watches.lock.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		if err := s.sleep(wait); err != nil {
			return 0, err
		}
	}
}

// sleep waits for a change, or for wait if it is not 0.
func (s *stream) sleep(wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-s.wake:
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	return nil
}

// take moves what may be read now into p. Without bytes and error, wait tells when to look again; 0: on a change.
func (s *stream) take(p []byte, now time.Time) (n int, wait time.Duration, err error) {
	frozen, lag := s.watches.state(s)
	switch {
	case s.cut:
		return 0, 0, errCut
	case frozen:
		return 0, 0, nil
	case len(s.chunks) == 0:
		return 0, 0, s.err
	}
	first := &s.chunks[0]
	if wait = first.arrived.Add(lag).Sub(now); wait > 0 {
		return 0, wait, nil
	}
	n = copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		s.chunks = s.chunks[1:]
	}
	return n, 0, nil
}

// state sums up the faults on a stream; lags do not add up, the longest counts.
func (w *watches) state(s *stream) (frozen bool, lag time.Duration) {
	for _, f := range w.faults {
		if f.match.matches(s.info, s.request) {
			frozen = frozen || f.frozen
			lag = max(lag, f.lag)
		}
	}
	return frozen, lag
}

func (s *stream) Close() error {
	s.watches.lock.Lock()
	delete(s.watches.open, s)
	s.watches.lock.Unlock()
	return s.source.Close()
}
