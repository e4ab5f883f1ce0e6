package replicaset

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
)

// horizonRetry is how long to wait before the versions at the start of a term are asked for again.
const horizonRetry = time.Second

// horizon is how far pods and ReplicaSets had come when somebody asked in this term. Nobody but us writes in it, so caches that have reached
// the horizon show all that the managers before us have written, and a first write that is decided on them needs no live read.
type horizon struct {
	versions atomic.Pointer[versions] // nil: not known yet
}

func (h *horizon) reset() { h.versions.Store(nil) }

// passedBy reports whether caches at these versions have reached the horizon. While it is not known, or if versions cannot be compared, they
// have not.
func (h *horizon) passedBy(at versions) bool {
	known := h.versions.Load()
	return known != nil && reached(at.pods, known.pods) && reached(at.sets, known.sets)
}

func reached(at, version string) bool {
	order, err := resourceversion.CompareResourceVersion(at, version)
	return err == nil && order >= 0
}

// readHorizon asks for the horizon until it is told or ctx, that of the term, has ended. Meanwhile first writes are decided on live reads.
func (c *Controller) readHorizon(ctx context.Context) {
	for {
		pods, podsErr := c.deps.Pods.Latest(ctx, c.deps.Client)
		sets, setsErr := c.deps.ReplicaSets.Latest(ctx, c.deps.Client)
		err := errors.Join(podsErr, setsErr)
		if err == nil {
			c.horizon.versions.Store(&versions{pods: pods, sets: sets})
			return
		}
		klog.FromContext(ctx).V(2).Info("Each first write is decided on a live read, the versions at the start of the term are not known", "err", err)
		timer := c.deps.Clock.NewTimer(horizonRetry)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
