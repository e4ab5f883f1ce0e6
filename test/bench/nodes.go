package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	restingCPU    = "manager CPU while all are healthy"
	restingWrites = "writes while all are healthy"

	nodeCount = 1000
	// nodesQuiet is the time without writes before the measurement. At first a manager sends an Event for every node.
	// nodesQuiet exceeds the default grace period, so the deadlines of nodes are spread over time.
	nodesQuiet  = 55 * time.Second
	nodesWindow = 30 * time.Second
	// renewInterval and leaseGrace are a kubelet's defaults.
	renewInterval = 10 * time.Second
	leaseGrace    = 40 * time.Second
	// renewers have 25 renewals a second each to send at 1,000 nodes.
	renewers = 4
)

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func createNodes(ctx context.Context, r *rig) { r.registerNodes(ctx, nodeCount) }

func (r *rig) registerNodes(ctx context.Context, n int) {
	must.ForEach(ctx, writers, n, func(ctx context.Context, i int) {
		must.Succeed(kubelet.Register(ctx, r.kube, controlplane.Node(nodeName(i)), leaseGrace))
	})
}

// renewLeases renews the leases of nodes until stop or the end of the turn, evenly spread over time.
func (r *rig) renewLeases(ctx context.Context, nodes int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended, abort := make(chan struct{}), r.abort
	go func() {
		defer close(ended)
		err := must.Catch(func() {
			must.ForEach(ctx, renewers, renewers, func(ctx context.Context, share int) {
				var mine []*coordinationv1.Lease
				for i := share; i < nodes; i += renewers {
					mine = append(mine, must.Get(r.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodeName(i), metav1.GetOptions{})))
				}
				ticker := time.NewTicker(renewInterval / time.Duration(max(1, len(mine))))
				defer ticker.Stop()
				for i := 0; len(mine) > 0; i = (i + 1) % len(mine) {
					select {
					case <-ctx.Done():
						return
					case <-ticker.C:
						must.Succeed(kubelet.Renew(ctx, r.kube, mine[i]))
					}
				}
			})
		})
		if ctx.Err() == nil {
			abort(err)
		}
	}()
	return func() { cancel(); <-ended }
}

func measureNodes(ctx context.Context, r *rig, c contestant) []reading {
	defer r.renewLeases(ctx, nodeCount)()
	m := r.launchWorking(ctx, c)
	count, since := -1, time.Now()
	must.Poll(ctx, 10*pollInterval, func() bool {
		if n := len(r.requests(controlplane.Writes)); n != count {
			count, since = n, time.Now()
		}
		return time.Since(since) >= nodesQuiet
	})
	healthy := r.measureEffort(m, func() time.Time { must.Pause(ctx, nodesWindow); return time.Now() })
	return []reading{
		{restingCPU, "% core", 100 * healthy.manager / healthy.wall},
		{restingWrites, "", float64(len(r.requests(controlplane.Writes)) - count)}, {resident, "MiB", residentMiB(m)},
	}
}
