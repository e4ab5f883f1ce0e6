package kcmtest

import (
	"sync"

	"github.com/go-logr/logr"
)

// until returns a logger that writes to log until silence is called. client-go has goroutines that nobody can wait for, and what a
// *testing.T is told after its test has ended is a panic.
func until(log logr.Logger) (_ logr.Logger, silence func()) {
	sink := log.GetSink()
	if sink == nil {
		return log, func() {}
	}
	line := &ending{}
	return log.WithSink(&endingSink{LogSink: sink, ending: line}), line.end
}

// ending is the end of a log.
type ending struct {
	lock sync.RWMutex // read by whoever writes, so that nothing is half written at the end
	over bool
}

func (e *ending) end() {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.over = true
}

// before calls f unless the log has ended.
func (e *ending) before(f func()) {
	e.lock.RLock()
	defer e.lock.RUnlock()
	if !e.over {
		f()
	}
}

// endingSink is a logr.LogSink that ends.
type endingSink struct {
	logr.LogSink
	*ending // of all sinks that come from one
}

func (s *endingSink) Enabled(level int) (enabled bool) {
	s.before(func() { enabled = s.LogSink.Enabled(level) })
	return enabled
}

func (s *endingSink) Info(level int, msg string, keysAndValues ...any) {
	s.before(func() { s.LogSink.Info(level, msg, keysAndValues...) })
}

func (s *endingSink) Error(err error, msg string, keysAndValues ...any) {
	s.before(func() { s.LogSink.Error(err, msg, keysAndValues...) })
}

func (s *endingSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &endingSink{s.LogSink.WithValues(keysAndValues...), s.ending}
}

func (s *endingSink) WithName(name string) logr.LogSink {
	return &endingSink{s.LogSink.WithName(name), s.ending}
}

// WithCallDepth implements logr.CallDepthLogSink. The caller is one function and one closure further away here.
func (s *endingSink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &endingSink{deep.WithCallDepth(depth), s.ending}
	}
	return s
}
