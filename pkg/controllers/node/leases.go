package node

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"minikcm/pkg/controllers/internal/live"
)

// readTimeout bounds a live read. A slow response proves as much as a fast one.
const readTimeout = 30 * time.Second

// cachedRenewTime returns the renewTime of the cached Lease of a node, zero without a Lease.
func (c *Controller) cachedRenewTime(name string) time.Time {
	lease, ok := c.leases.Get(cache.ObjectName{Namespace: corev1.NamespaceNodeLease, Name: name})
	if !ok {
		return time.Time{}
	}
	return renewTimeOf(lease)
}

func renewTimeOf(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}

// readLease reads the Lease of one node. A node may have no Lease.
func (c *Controller) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lease, err := live.Find(ctx, name, c.reads.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get)
	c.api.observeRequest(err)
	if lease != nil {
		c.health.recordLease(name, renewTimeOf(lease), c.Clock.Now())
	}
	return err
}
