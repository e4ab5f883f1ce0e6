package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/live"
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

// leaseReader reads Leases of nodes from the cache and from the API server, and records signs of life of live reads.
type leaseReader struct {
	client kubernetes.Interface // not rate limited
	cache  *caches.Leases
	clock  clock.PassiveClock
	health *healthMap
	api    *apiHealth

	all        *live.Reads[struct{}] // lists of all Leases
	inFlight   atomic.Int32
	listFailed time.Time // only for list
}

func newLeaseReader(client kubernetes.Interface, leases *caches.Leases, clk clock.PassiveClock, api *apiHealth) *leaseReader {
	l := &leaseReader{client: client, cache: leases, clock: clk, health: api.health, api: api}
	l.all = live.NewReads(clk, func(ctx context.Context, _ string) (struct{}, error) { return struct{}{}, l.listLeases(ctx) })
	return l
}

// cachedRenewTime returns the renewTime of the cached Lease of a node, zero without a Lease.
func (l *leaseReader) cachedRenewTime(name string) time.Time {
	lease, ok := l.cache.Get(cache.ObjectName{Namespace: corev1.NamespaceNodeLease, Name: name})
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

// readAfter reads the Lease of a node with a request that is sent after due.
func (l *leaseReader) readAfter(ctx context.Context, name string, due time.Time) error {
	defer l.inFlight.Add(-1)
	if l.inFlight.Add(1) > maxSingleReads {
		if _, err := l.all.Get(ctx, "", due.Add(1)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return l.readLease(ctx, name)
}

// readLease reads the Lease of one node. A node may have no Lease.
func (l *leaseReader) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lease, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	if outcome.IsNotFound(err, name) {
		l.api.observeRead(nil)
		return nil
	}
	l.api.observeRead(err)
	if err != nil {
		return fmt.Errorf("read lease: %w", err)
	}
	l.health.liveLease(name, renewTimeOf(lease), l.clock.Now())
	return nil
}

// listLeases reads the Leases of all nodes. All pages show the state at the time of the first.
func (l *leaseReader) listLeases(ctx context.Context) error {
	if l.clock.Since(l.listFailed) < listPause {
		return errListPaused
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for opts := (metav1.ListOptions{Limit: leasesPerPage}); ; {
		page, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, opts)
		l.api.observeRead(err)
		if err != nil {
			l.listFailed = l.clock.Now()
			return fmt.Errorf("list leases: %w", err)
		}
		now := l.clock.Now()
		for i := range page.Items {
			l.health.liveLease(page.Items[i].Name, renewTimeOf(&page.Items[i]), now)
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return nil
		}
	}
}
