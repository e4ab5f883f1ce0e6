package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const (
	// renewPeriod and leaseGrace are a kubelet's defaults.
	renewPeriod = 10 * time.Second
	leaseGrace  = 40 * time.Second
	// fewRenewers have 25 renewals a second each to send at 1,000 nodes.
	fewRenewers = 4
)

// startKubelets renews the leases of nodes until stop, evenly spread over time. An error ends the turn. stop may be
// called again.
func (r *rig) startKubelets(ctx context.Context, renewers int, nodes []string) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := r.renewLeases(ctx, renewers, nodes)
		if err != nil {
			r.abort(err)
		}
		ended <- err
	}()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func (r *rig) renewLeases(ctx context.Context, renewers int, nodes []string) error {
	return inParallel(ctx, renewers, renewers, func(ctx context.Context, share int) error {
		var mine []*coordinationv1.Lease
		for i := share; i < len(nodes); i += renewers {
			lease, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodes[i], metav1.GetOptions{})
			if err != nil {
				return ignoreEnd(ctx, fmt.Errorf("get lease: %w", err))
			}
			mine = append(mine, lease)
		}
		ticker := time.NewTicker(renewPeriod / time.Duration(len(mine)))
		defer ticker.Stop()
		for i := 0; ; i = (i + 1) % len(mine) {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
			if err := kubelet.Renew(ctx, r.client, mine[i]); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
	})
}

func (r *rig) registerNode(ctx context.Context, name string) error {
	return kubelet.Register(ctx, r.client, controlplane.Node(name), leaseGrace)
}

// ignoreEnd drops an error that comes from the end of ctx.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
