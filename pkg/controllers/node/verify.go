package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	leaseInterval = 10 * time.Second // kubelets renew every quarter of the lease duration of 40 s
	manyNodes     = 3                // so many nodes are asked for one by one
	manyShare     = 10               // or one in so many
	listAge       = 2 * time.Second  // how long a list of Leases serves
	listTimeout   = 30 * time.Second // of the list of all nodes
)

var errStaleNodes = errors.New("the node cache is behind the API server")

// answerTime is how long the API server may take for an answer that is to prove a node's silence: a tenth of the grace period, within
// limits. A server that takes longer, or a connection that hangs, keeps kubelets from renewing as well, and what it says in the end
// says nothing about them.
func (c *Controller) answerTime() time.Duration {
	return min(max(c.cfg.MonitorGracePeriod/10, time.Second), 10*time.Second)
}

// leaseLists is the last list of Leases, shared by all who need one at a time.
type leaseLists struct {
	lock sync.Mutex
	made time.Time // when it was asked for
}

// confirmSilence asks the API server itself whether a node has been silent since due. If many nodes are due one list answers for
// all of them.
func (c *Controller) confirmSilence(ctx context.Context, node *corev1.Node, due time.Time) (bool, error) {
	listed, err := c.listIfMany(ctx, due)
	if err == nil && !listed {
		err = c.readLease(ctx, node.Name)
	}
	if err != nil {
		return false, err
	}
	r := c.record(node)
	return judge(r.heartbeat, r.judged, r.ready != "", c.cfg, c.clock.Now()).silent, nil
}

// listIfMany makes sure that there is a list of Leases from after due, if many nodes want one.
func (c *Controller) listIfMany(ctx context.Context, due time.Time) (listed bool, err error) {
	c.lists.lock.Lock()
	defer c.lists.lock.Unlock()
	now := c.clock.Now()
	if c.lists.made.After(due) && now.Sub(c.lists.made) < listAge {
		return true, nil
	}
	if all, n := c.observations.count(c.cfg, now.Add(leaseInterval)); n <= max(manyNodes, all/manyShare) {
		return false, nil
	}
	if err := c.listLeases(ctx); err != nil {
		return false, err
	}
	c.lists.made = now
	return true, nil
}

// readLease takes in a node's Lease as it is now. Having none is an answer.
func (c *Controller) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	now := c.clock.Now()
	if err != nil && !apierrors.IsNotFound(err) {
		c.sight.failed(err, false, now)
		return fmt.Errorf("read lease: %w", err)
	}
	c.sight.readSucceeded(now)
	if err == nil && c.observations.liveLease(name, renewal(lease), now) {
		c.compareLeases(lease.ResourceVersion, now)
	}
	return nil
}

// listLeases takes in the Leases of all nodes as they are now.
func (c *Controller) listLeases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	list, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	now := c.clock.Now()
	if err != nil {
		c.sight.failed(err, false, now)
		return fmt.Errorf("list leases: %w", err)
	}
	c.sight.readSucceeded(now)
	news := false
	for i := range list.Items {
		lease := &list.Items[i]
		news = c.observations.liveLease(lease.Name, renewal(lease), now) || news
	}
	if news {
		c.compareLeases(list.ResourceVersion, now)
	}
	c.sight.fed(now)
	return nil
}

// compareLeases is called when a live read at a version brought news that should have come by watch.
func (c *Controller) compareLeases(version string, now time.Time) {
	if !reached(c.leases.Version(), version) {
		c.sight.behind(version, now)
	}
}

// probe asks for next to nothing, to see whether the API server answers.
func (c *Controller) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	_, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{Limit: 1})
	now := c.clock.Now()
	if err != nil {
		c.sight.failed(err, false, now)
		return fmt.Errorf("probe: %w", err)
	}
	c.sight.readSucceeded(now)
	return nil
}

// compareNodes returns nil once the node cache is known to be no older than this call: it has reached the version of a list, or, if
// it does not within a moment because the type is quiet, it equals a list.
func (c *Controller) compareNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	head, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list one node: %w", err)
	}
	for range 25 {
		if reached(c.nodes.Version(), head.ResourceVersion) {
			return nil
		}
		if !c.pause(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	versions := map[string]string{}
	opts := metav1.ListOptions{Limit: 500}
	for {
		page, err := c.client.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		for i := range page.Items {
			versions[page.Items[i].Name] = page.Items[i].ResourceVersion
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	return c.sameNodes(versions)
}

// sameNodes compares the node cache with names and versions. Versions grow from one node of a name to the next.
func (c *Controller) sameNodes(versions map[string]string) error {
	cached := c.nodes.List()
	for _, node := range cached {
		version, ok := versions[node.Name]
		if !ok || !reached(node.ResourceVersion, version) {
			return fmt.Errorf("node %s: %w", node.Name, errStaleNodes)
		}
	}
	if len(cached) < len(versions) {
		return errStaleNodes
	}
	return nil
}
