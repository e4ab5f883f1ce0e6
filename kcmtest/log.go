package kcmtest

import (
	"sync"

	"github.com/go-logr/logr"
)

// endableLogger returns a logger that writes to log until silence is called. client-go has goroutines without a known
// end, and a log line after the end of a test is a panic of *testing.T.
func endableLogger(log logr.Logger) (_ logr.Logger, silence func()) {
	sink := log.WithCallDepth(1).GetSink() // an endingSink adds a frame to the stack
	if sink == nil {
		return log, func() {}
	}
	end := &ending{}
	return log.WithSink(&endingSink{LogSink: sink, ending: end}), end.reach
}

// ending is the end of a log.
type ending struct {
	lock sync.RWMutex // writers hold a read lock, so that no line is incomplete at the end
	over bool
}

func (e *ending) reach() {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.over = true
}

// endingSink is a logr.LogSink that ends.
type endingSink struct {
	logr.LogSink
	*ending // shared by all derived sinks
}

func (s *endingSink) Info(level int, msg string, keysAndValues ...any) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	if !s.over {
		s.GetCallStackHelper()()
		s.LogSink.Info(level, msg, keysAndValues...)
	}
}

func (s *endingSink) Error(err error, msg string, keysAndValues ...any) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	if !s.over {
		s.GetCallStackHelper()()
		s.LogSink.Error(err, msg, keysAndValues...)
	}
}

func (s *endingSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &endingSink{s.LogSink.WithValues(keysAndValues...), s.ending}
}

func (s *endingSink) WithName(name string) logr.LogSink {
	return &endingSink{s.LogSink.WithName(name), s.ending}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *endingSink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &endingSink{deep.WithCallDepth(depth), s.ending}
	}
	return s
}

// GetCallStackHelper implements logr.CallStackHelperLogSink, by which *testing.T finds the caller.
func (s *endingSink) GetCallStackHelper() func() {
	if helped, ok := s.LogSink.(logr.CallStackHelperLogSink); ok {
		return helped.GetCallStackHelper()
	}
	return func() {}
}
