package main

import (
	"context"
	"fmt"
	"time"
)

const (
	nodeCount = 1000
	// nodesQuiet is the time without writes before the measurement. At first a manager sends an Event for every node.
	// nodesQuiet exceeds renewPeriod, so each node has renewed the lease.
	nodesQuiet  = 12 * time.Second
	nodesWindow = 30 * time.Second
	nodeGrace   = "--node-monitor-grace-period=20s"
)

var (
	nodesCPU    = metric{"manager CPU", "% core"}
	nodesWrites = metric{"writes while all are healthy", "requests"}
	nodesMemory = metric{"resident", "MiB"}
)

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = nodeName(i)
	}
	return names
}

func manyNodes(ctx context.Context, r *rig) error {
	return inParallel(ctx, writers, nodeCount, func(ctx context.Context, i int) error { return r.registerNode(ctx, nodeName(i)) })
}

func measureNodes(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	stopBeating := r.startKubelets(ctx, fewRenewers, nodeNames(nodeCount))
	// An error of the renewals ends the turn anyway.
	defer func() { _ = stopBeating() }()
	m, err := r.launchWorking(ctx, c, nodeGrace)
	if err != nil {
		return nil, err
	}
	if err := r.awaitQuiet(ctx, nodesQuiet); err != nil {
		return nil, err
	}
	readings, err := r.whileHealthy(ctx, m)
	if err != nil {
		return nil, err
	}
	return readings, stopBeating()
}

func (r *rig) awaitQuiet(ctx context.Context, quiet time.Duration) error {
	count, since := -1, time.Now()
	return poll(ctx, auditPeriod*10, func() (bool, error) {
		requests, err := r.cluster.ReadAuditLog(requestsOf(managerUser))
		if len(requests) != count {
			count, since = len(requests), time.Now()
		}
		return time.Since(since) >= quiet, err
	})
}

func (r *rig) whileHealthy(ctx context.Context, m *manager) ([]reading, error) {
	before, err := r.cluster.ReadAuditLog(requestsOf(managerUser))
	if err != nil {
		return nil, err
	}
	healthy, err := r.effort(ctx, m, "healthy", func() (time.Time, error) {
		err := pause(ctx, nodesWindow)
		return time.Now(), err
	})
	if err != nil {
		return nil, err
	}
	after, err := r.cluster.ReadAuditLog(requestsOf(managerUser))
	if err != nil {
		return nil, err
	}
	used, err := memoryOf(m.Pid())
	return []reading{
		{nodesCPU, 100 * healthy.manager / healthy.wall}, {nodesWrites, float64(len(after) - len(before))}, {nodesMemory, used.resident},
	}, err
}
