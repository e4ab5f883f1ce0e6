package faults

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// WatchFault is a fault of watch streams, including later streams, until Thaw or Cut.
type WatchFault struct {
	watches *watches
	match   Match
	lag     time.Duration
	frozen  bool
	idle    time.Duration
}

// Thaw ends the fault and delivers the backlog of each stream at once.
func (f *WatchFault) Thaw() { f.endFault(false) }

// Cut ends the fault and resets the affected streams without the backlog.
func (f *WatchFault) Cut() { f.endFault(true) }

func (f *WatchFault) endFault(cut bool) {
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
		s.wakeReader()
	}
}

type watches struct {
	spawn func(func()) bool

	lock   sync.Mutex
	open   map[*stream]struct{}
	faults []*WatchFault
}

func (w *watches) addFault(f *WatchFault) *WatchFault {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.faults = append(w.faults, f)
	for s := range w.open {
		s.wakeReader()
	}
	return f
}

func (w *watches) cutMatching(m Match) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	n := 0
	for s := range w.open {
		if m.matches(s.info, s.request) {
			s.cut = true
			s.wakeReader()
			n++
		}
	}
	return n
}

func (w *watches) countMatching(m Match) int {
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

type chunk struct {
	data    []byte
	arrived time.Time
}

// stream is the body of a watch response. All data of the server is buffered, and read as the faults allow.
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

	passed time.Time
}

func (w *watches) startStream(ctx context.Context, i info, client *http.Request, answer *http.Response) *stream {
	s := &stream{watches: w, ctx: ctx, info: i, request: client, source: answer.Body, wake: make(chan struct{}, 1), passed: time.Now()}
	w.lock.Lock()
	w.open[s] = struct{}{}
	w.lock.Unlock()
	w.spawn(s.readSource) // if the proxy has ended, so has the stream's context
	return s
}

func (s *stream) readSource() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := s.source.Read(buffer)
		s.watches.lock.Lock()
		if n > 0 {
			s.chunks = append(s.chunks, chunk{slices.Clone(buffer[:n]), time.Now()})
		}
		s.err = err
		s.wakeReader()
		s.watches.lock.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *stream) wakeReader() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read blocks until the faults let bytes or the end through, or the client has left.
func (s *stream) Read(p []byte) (int, error) {
	for {
		s.watches.lock.Lock()
		n, wait, err := s.takeBytes(p, time.Now())
		s.watches.lock.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		if err := s.awaitWake(wait); err != nil {
			return 0, err
		}
	}
}

func (s *stream) awaitWake(wait time.Duration) error {
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

func (s *stream) takeBytes(p []byte, now time.Time) (n int, wait time.Duration, err error) {
	c := s.watches.conditionOf(s)
	if s.cut {
		return 0, 0, errCut
	}
	if n, wait, err = s.nextBytes(p, c, now); n > 0 || err != nil {
		s.passed = now
		return n, 0, err
	}
	if c.idle > 0 {
		left := s.passed.Add(c.idle).Sub(now)
		if left <= 0 {
			return 0, 0, errCut
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return 0, wait, nil
}

// nextBytes is takeBytes for a stream that is not cut.
func (s *stream) nextBytes(p []byte, c condition, now time.Time) (n int, wait time.Duration, err error) {
	switch {
	case c.frozen:
		return 0, 0, nil
	case len(s.chunks) == 0:
		return 0, 0, s.err
	}
	first := &s.chunks[0]
	if wait = first.arrived.Add(c.lag).Sub(now); wait > 0 {
		return 0, wait, nil
	}
	n = copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		s.chunks = s.chunks[1:]
	}
	return n, 0, nil
}

// condition sums up the faults on a stream.
type condition struct {
	frozen    bool
	lag, idle time.Duration
}

// conditionOf returns the faults on a stream: the longest lag and the shortest idle time.
func (w *watches) conditionOf(s *stream) condition {
	var c condition
	for _, f := range w.faults {
		if !f.match.matches(s.info, s.request) {
			continue
		}
		c.frozen = c.frozen || f.frozen
		c.lag = max(c.lag, f.lag)
		if f.idle > 0 && (c.idle == 0 || f.idle < c.idle) {
			c.idle = f.idle
		}
	}
	return c
}

func (s *stream) Close() error {
	s.watches.lock.Lock()
	delete(s.watches.open, s)
	s.watches.lock.Unlock()
	return s.source.Close()
}
