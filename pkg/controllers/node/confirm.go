package node

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

// maxConfirmPause bounds the pause between two comparisons, each of which lists all nodes.
const maxConfirmPause = 10 * time.Second

// confirmNodes compares the node cache with the API server until both are equal, and then queues all nodes. States
// of zones depend on all nodes, so a live read of one node is not enough.
func (c *Controller) confirmNodes(ctx context.Context) {
	for pause := 2 * time.Second; ; pause = min(2*pause, maxConfirmPause) {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		err := c.nodes.Confirm(limited, c.metadata)
		cancel()
		if err == nil {
			c.confirmed.Store(true)
			c.enqueueAll()
			return
		}
		if !timing.Sleep(ctx, c.Clock, pause) {
			return
		}
		klog.FromContext(ctx).Info("Node cache was not confirmed yet, no node was tainted NoExecute", "reason", err)
	}
}
