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

// confirmation is whether the node cache has been found equal to what the API server has in this term. Zones are decided over all nodes, so
// a live read of one node would not do.
type confirmation struct {
	nodes      *caches.Nodes
	metadata   metadata.Interface
	clock      clock.WithTicker
	visibility *visibility

	done atomic.Bool
}

// maxConfirmPause is the longest time from one list of all nodes to the next while the cache stays behind.
const maxConfirmPause = 30 * time.Second

// begin starts a term.
func (c *confirmation) begin() { c.done.Store(false) }

// run compares the cache with the API server until they agree, which it tells, or ctx has ended.
func (c *confirmation) run(ctx context.Context, confirmed func()) {
	for pause := time.Second; ; {
		err := c.compare(ctx)
		if err == nil {
			c.done.Store(true)
			confirmed()
			return
		}
		if errors.Is(err, freshness.ErrBehind) { // the API server has answered: kubelets get their answers as well
			pause = min(2*pause, maxConfirmPause)
		} else {
			c.visibility.failed(readRequest, err, c.clock.Now())
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
