package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const listTimeout = 30 * time.Second // of a list of all nodes, or of all Leases

// leasesPerPage is how many Leases are asked for at once. A page of them is some hundred kilobytes.
const leasesPerPage = 1000

// answerTime is how long the API server may take for one answer that is to prove a node's silence: a tenth of the grace period, within
// limits. A server that takes longer, or a connection that hangs, keeps kubelets from renewing as well, and what it says in the end
// says nothing about them. It is not a limit of what follows from the proof: a write may take as long as the API server lets it.
func (c *Controller) answerTime() time.Duration {
	return min(max(c.cfg.MonitorGracePeriod/10, time.Second), 10*time.Second)
}

// confirmSilence asks the API server itself whether a node has been silent since due. If many nodes are due one list answers for
// all of them.
func (c *Controller) confirmSilence(ctx context.Context, node *corev1.Node, due time.Time) (bool, error) {
	covered, err := c.lists.covers(ctx, due)
	if err == nil && !covered {
		err = c.readLease(ctx, node.Name)
	}
	if err != nil {
		return false, err
	}
	r := c.record(node)
	return judge(r.heartbeat, r.judged, r.ready != "", c.cfg, c.clock.Now()).silent, nil
}

// manyDue reports whether so many nodes are due that one list of all Leases is cheaper than reading theirs.
func (c *Controller) manyDue(now time.Time) bool {
	all, due := c.health.count(c.cfg, now.Add(leaseInterval))
	return due > max(manyNodes, all/manyShare)
}

// readLease takes in a node's Lease as it is now. Having none is an answer.
func (c *Controller) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	lease, err := c.reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	now := c.clock.Now()
	if err != nil && !apierrors.IsNotFound(err) {
		c.visibility.failed(reading("lease", name), err, now)
		return fmt.Errorf("read lease: %w", err)
	}
	c.visibility.readSucceeded(reading("lease", name), now)
	if err == nil && c.health.liveLease(name, renewal(lease), now) {
		c.compareLeases(lease.ResourceVersion, now)
	}
	return nil
}

// listLeases takes in the Leases of all nodes as they are now. All pages are of the moment of the first.
func (c *Controller) listLeases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	begun, all := c.clock.Now(), reading("list", "leases")
	news := false
	for opts := (metav1.ListOptions{Limit: leasesPerPage}); ; {
		page, err := c.reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, opts)
		now := c.clock.Now()
		if err != nil {
			c.visibility.failed(all, err, now)
			return fmt.Errorf("list leases: %w", err)
		}
		for i := range page.Items {
			lease := &page.Items[i]
			news = c.health.liveLease(lease.Name, renewal(lease), now) || news
		}
		if opts.Continue = page.Continue; opts.Continue != "" {
			continue
		}
		c.visibility.readSucceeded(all, now)
		if news {
			c.compareLeases(page.ResourceVersion, now)
		}
		c.visibility.listed(now, now.Sub(begun))
		return nil
	}
}

// compareLeases is called when a live read at a version brought news that should have come by watch.
func (c *Controller) compareLeases(version string, now time.Time) {
	if !reached(c.leases.Version(), version) {
		c.visibility.behind(version, now)
	}
}

// probe asks for next to nothing, to see whether the API server answers.
func (c *Controller) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	_, err := c.reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		c.visibility.probeFailed(err)
		return fmt.Errorf("probe: %w", err)
	}
	c.visibility.readSucceeded(request{}, c.clock.Now())
	return nil
}
