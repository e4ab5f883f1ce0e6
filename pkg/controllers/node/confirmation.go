package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/freshness"
)

// confirmation records whether the node cache was equal to the API server at some time of this term. States of
// zones depend on all nodes, so a live read of one node is not enough.
type confirmation struct {
	nodes    *caches.Nodes
	metadata metadata.Interface
	clock    clock.WithTicker
	api      *apiHealth

	done atomic.Bool
}

// maxConfirmPause bounds the pause between two comparisons while the cache stays behind.
const maxConfirmPause = 30 * time.Second

func (c *confirmation) begin() { c.done.Store(false) }

// run compares the cache with the API server until both are equal, and then calls confirmed.
func (c *confirmation) run(ctx context.Context, confirmed func()) {
	for pause := time.Second; ; {
		err := c.compare(ctx)
		if err == nil {
			c.done.Store(true)
			confirmed()
			return
		}
		if errors.Is(err, freshness.ErrBehind) { // the API server is reachable
			pause = min(2*pause, maxConfirmPause)
		} else {
			c.api.observeRead(err)
		}
		klog.FromContext(ctx).V(2).Info("Node cache is not confirmed yet, no node is tainted NoExecute", "reason", err)
		if !timing.Sleep(ctx, c.clock, pause) {
			return
		}
	}
}

func (c *confirmation) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return c.nodes.Confirm(ctx, c.metadata, c.clock)
}
