package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/outcome"
)

const (
	// readTimeout is of a read that is to prove something, of one object or of all. Such an answer proves what it proves, however long it took: it
	// is as of a moment after it was asked for, and requests of kubelets have a higher priority in the API server than ours.
	readTimeout   = 30 * time.Second
	leasesPerPage = 1000 // a page of them is some hundred kilobytes
)

// probeTimeout is how long the API server may take for next to nothing: a tenth of the grace period, within limits. When no Lease is renewed and
// it takes longer, or the connection hangs, kubelets may not reach it either.
func (c Config) probeTimeout() time.Duration {
	return min(max(c.MonitorGracePeriod/10, time.Second), 10*time.Second)
}

// leaseReader knows what the Leases of nodes say: as the cache has them, and by live reads that prove a node's silence. Of live reads it tells
// health what they show and visibility how they went.
type leaseReader struct {
	cfg        Config
	client     kubernetes.Interface
	cache      *caches.Leases
	clock      clock.WithTicker
	health     *healthMap
	visibility *visibility

	lists *leaseLists // of one term
}

// begin starts a term.
func (l *leaseReader) begin() {
	l.lists = &leaseLists{list: l.list, many: l.manyDue, now: l.clock.Now}
}

// cached is the renewTime of a node's Lease as far as the cache knows, zero if there is none.
func (l *leaseReader) cached(name string) time.Time {
	lease, ok := l.cache.Get(cache.ObjectName{Namespace: corev1.NamespaceNodeLease, Name: name})
	if !ok {
		return time.Time{}
	}
	return renewal(lease)
}

func renewal(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// readSince takes in a node's Lease as it was at some moment after due. If many nodes are due one list answers for all of them.
func (l *leaseReader) readSince(ctx context.Context, name string, due time.Time) error {
	covered, err := l.lists.covers(ctx, due)
	if covered || err != nil {
		return err
	}
	return l.read(ctx, name)
}

// manyDue reports whether so many nodes are due that one list of all Leases is cheaper than reading theirs.
func (l *leaseReader) manyDue(now time.Time) bool {
	soon := min(leaseInterval, l.cfg.MonitorGracePeriod/5) // with a short grace period every node is due within an interval
	all, due := l.health.count(l.cfg, now.Add(soon))
	return due > max(manyNodes, all/manyShare)
}

// read takes in a node's Lease as it is now. Having none is an answer.
func (l *leaseReader) read(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lease, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	now := l.clock.Now()
	if err != nil && !outcome.IsNotFound(err, name) {
		l.visibility.failed(readRequest, err, now)
		return fmt.Errorf("read lease: %w", err)
	}
	l.visibility.readSucceeded(now)
	if err == nil && l.health.liveLease(name, renewal(lease), now) {
		l.compare(lease.ResourceVersion, now)
	}
	return nil
}

// list takes in the Leases of all nodes as they are now. All pages are of the moment of the first.
func (l *leaseReader) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begun := l.clock.Now()
	news := false
	for opts := (metav1.ListOptions{Limit: leasesPerPage}); ; {
		page, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, opts)
		now := l.clock.Now()
		if err != nil {
			l.visibility.failed(readRequest, err, now)
			return fmt.Errorf("list leases: %w", err)
		}
		for i := range page.Items {
			lease := &page.Items[i]
			news = l.health.liveLease(lease.Name, renewal(lease), now) || news
		}
		if opts.Continue = page.Continue; opts.Continue != "" {
			continue
		}
		l.visibility.readSucceeded(now)
		if news {
			l.compare(page.ResourceVersion, now)
		}
		l.visibility.listed(now, now.Sub(begun))
		return nil
	}
}

// compare compares the Lease cache with the version of a live read that brought news: the watch should have brought it before.
func (l *leaseReader) compare(version string, now time.Time) {
	if !reached(l.cache.Version(), version) {
		l.visibility.behind(version, now)
	}
}

// probe asks for next to nothing, to see whether the API server answers.
func (l *leaseReader) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.probeTimeout())
	defer cancel()
	_, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		l.visibility.probeFailed(err)
		return fmt.Errorf("probe: %w", err)
	}
	l.visibility.readSucceeded(l.clock.Now())
	return nil
}
