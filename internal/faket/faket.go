// Package faket has a test that may fail, to test what ends tests with.
package faket

import (
	"fmt"
	"runtime"
	"sync"
)

// T is a test. Its zero value has not failed.
type T struct {
	Fatal    string // what ended it
	cleanups []func()

	lock   sync.Mutex
	Errors []string
}

// Run runs the test and then its cleanups.
func (t *T) Run(test func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test()
	}()
	<-ended
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}

// Helper does nothing.
func (t *T) Helper() {}

// Cleanup takes what is called when the test has ended.
func (t *T) Cleanup(c func()) { t.cleanups = append(t.cleanups, c) }

// Errorf fails the test.
func (t *T) Errorf(format string, args ...any) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.Errors = append(t.Errors, fmt.Sprintf(format, args...))
}

// Fatalf ends the test.
func (t *T) Fatalf(format string, args ...any) {
	t.Fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
