package fakeapi

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/klog/v2"
)

// Quiet keeps errors that a test provokes out of its output.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Fill starts caches in a bubble of fake time and waits until they are filled. The function it returns stops them.
func Fill(t testing.TB, caches interface {
	Start(context.Context)
	WaitForSync(context.Context) error
	Shutdown()
}) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(Quiet(t.Context()))
	caches.Start(ctx)
	if err := caches.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // a fake server forgets what happens between a list and its watch
	return func() {
		cancel()
		caches.Shutdown()
	}
}

// Term begins a term of a controller in a bubble of fake time and waits until it has come to rest. The function it returns ends it; it
// may be called again.
func Term(t testing.TB, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(Quiet(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}
