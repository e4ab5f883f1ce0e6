package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// kubelets renew the leases of many nodes as as many kubelets do, evenly spread over time.
type kubelets struct {
	client   kubernetes.Interface
	renewers int          // share the leases among them
	renewed  atomic.Int64 // renewals that were answered

	lock   sync.Mutex
	silent string               // node that is not renewed any more
	signs  map[string]time.Time // last sign of life, by node: when the last renewal was sent
}

// startKubelets renews the leases of nodes until stop, which may be called more than once. An error ends the turn.
func (r *rig) startKubelets(ctx context.Context, renewers int, nodes []string) (k *kubelets, stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	k = &kubelets{client: r.client, renewers: renewers, signs: map[string]time.Time{}}
	ended := make(chan error, 1)
	go func() {
		err := k.run(ctx, nodes)
		if err != nil {
			r.abort(err)
		}
		ended <- err
	}()
	return k, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// run returns when ctx is done, which is no error.
func (k *kubelets) run(ctx context.Context, nodes []string) error {
	return inParallel(ctx, k.renewers, k.renewers, func(ctx context.Context, share int) error {
		var mine []*coordinationv1.Lease
		for i := share; i < len(nodes); i += k.renewers {
			lease, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodes[i], metav1.GetOptions{})
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
			if err := k.renew(ctx, mine[i]); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
	})
}

// renew changes lease in place.
func (k *kubelets) renew(ctx context.Context, lease *coordinationv1.Lease) error {
	now := time.Now()
	k.lock.Lock()
	if lease.Name == k.silent {
		k.lock.Unlock()
		return nil
	}
	k.signs[lease.Name] = now
	k.lock.Unlock()
	if err := kubelet.Renew(ctx, k.client, lease); err != nil {
		return err
	}
	k.renewed.Add(1)
	return nil
}

// silence stops the renewals of a node and returns when the last one was sent. It must have been renewed before.
func (k *kubelets) silence(node string) time.Time {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.silent = node
	return k.signs[node]
}

// registerNode creates a node that is ready, with its lease, and needs nothing done to it.
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
