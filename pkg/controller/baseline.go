package controller

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// baselineRetry is how long to wait before the API server is asked again.
const baselineRetry = time.Second

// Baseline holds the resource versions that some types had when the API server was asked for them in this term. Only this process has led since, so
// caches that have reached the baseline show every write of earlier leaders, and a first write of the term may be decided on them without a live
// read. The zero value is an unknown baseline. Reset and Read are for the controller's Run; ReachedBy is safe to call from any goroutine.
type Baseline struct {
	versions atomic.Pointer[Versions] // nil: not known
}

// Reset forgets the baseline, as a new term must.
func (b *Baseline) Reset() { b.versions.Store(nil) }

// ReachedBy reports whether caches at these versions have reached the baseline. While it is not known, or if versions cannot be compared, they
// have not.
func (b *Baseline) ReachedBy(at Versions) bool {
	known := b.versions.Load()
	if known == nil {
		return false
	}
	for _, v := range *known {
		if !rv.AtLeast(at.Of(v.Resource), v.Version) {
			return false
		}
	}
	return true
}

// Read asks for the baseline until ask succeeds or ctx, that of the term, has ended.
func (b *Baseline) Read(ctx context.Context, clk clock.WithTicker, ask func(context.Context) (Versions, error)) {
	for {
		versions, err := ask(ctx)
		if err == nil {
			b.versions.Store(&versions)
			return
		}
		klog.FromContext(ctx).V(2).Info("Each first write is decided on a live read, the versions at the start of the term are not known", "err", err)
		if !timing.Sleep(ctx, clk, baselineRetry) {
			return
		}
	}
}
