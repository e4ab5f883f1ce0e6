package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/outcome"
)

const (
	// readTimeout bounds a live read. A slow response proves as much as a fast one.
	readTimeout = 30 * time.Second
	// leasesPerPage gives pages of some hundred kilobytes.
	leasesPerPage = 1000
	// maxSingleReads is the number of Leases that are read one by one at the same time. Further reads share lists.
	maxSingleReads = 3
	// listPause is the pause after a failed list, in which all Leases are read one by one.
	listPause = 10 * time.Second
)

var errListPaused = errors.New("an earlier list of leases failed")

// cachedRenewTime returns the renewTime of the cached Lease of a node, zero without a Lease.
func (c *Controller) cachedRenewTime(name string) time.Time {
	lease, ok := c.deps.Leases.Get(cache.ObjectName{Namespace: corev1.NamespaceNodeLease, Name: name})
	if !ok {
		return time.Time{}
	}
	return renewTimeOf(lease)
}

func renewTimeOf(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// readLeaseAfter reads the Lease of a node with a request that is sent after due.
func (c *Controller) readLeaseAfter(ctx context.Context, name string, due time.Time) error {
	defer c.leaseReads.Add(-1)
	if c.leaseReads.Add(1) > maxSingleReads {
		if _, err := c.leaseLists.Get(ctx, "", due.Add(1)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return c.readLease(ctx, name)
}

// readLease reads the Lease of one node. A node may have no Lease.
func (c *Controller) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lease, err := c.deps.Reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	if outcome.IsNotFound(err, name) {
		c.api.observeRead(nil)
		return nil
	}
	c.api.observeRead(err)
	if err != nil {
		return fmt.Errorf("read lease: %w", err)
	}
	c.health.liveLease(name, renewTimeOf(lease), c.clock.Now())
	return nil
}

// listLeases reads the Leases of all nodes. All pages show the state at the time of the first.
func (c *Controller) listLeases(ctx context.Context, _ string) (none struct{}, err error) {
	if c.clock.Since(c.listFailed) < listPause {
		return none, errListPaused
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for opts := (metav1.ListOptions{Limit: leasesPerPage}); ; {
		page, err := c.deps.Reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, opts)
		c.api.observeRead(err)
		if err != nil {
			c.listFailed = c.clock.Now()
			return none, fmt.Errorf("list leases: %w", err)
		}
		now := c.clock.Now()
		for i := range page.Items {
			c.health.liveLease(page.Items[i].Name, renewTimeOf(&page.Items[i]), now)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return none, nil
		}
	}
}
