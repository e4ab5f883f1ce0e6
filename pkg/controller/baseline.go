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

// baselineRetry is the delay between attempts.
const baselineRetry = time.Second

// Baseline holds the resourceVersions of some types at the start of a term. Only this process has led
// since, so caches that have reached the baseline show every write of earlier leaders. The zero value is an
// unknown baseline. Reset and Read are for Run of the controller; ReachedBy may be called from any
// goroutine.
type Baseline struct {
	versions atomic.Pointer[Versions] // nil if unknown
}

// Reset forgets the baseline. A new term calls it.
func (b *Baseline) Reset() { b.versions.Store(nil) }

// ReachedBy reports whether caches at these versions have reached the baseline. It returns false if the
// baseline is unknown or versions cannot be compared.
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

// Read calls read until it succeeds or the term ends.
func (b *Baseline) Read(ctx context.Context, clk clock.WithTicker, read func(context.Context) (Versions, error)) {
	for {
		versions, err := read(ctx)
		if err == nil {
			b.versions.Store(&versions)
			return
		}
		klog.FromContext(ctx).V(2).Info("Deciding first writes on live reads, the versions at the start of the term are unknown", "err", err)
		if !timing.Sleep(ctx, clk, baselineRetry) {
			return
		}
	}
}
