package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	manyNodeCount = 5000
	// manyRenewers send 500 renewals a second between them, if the API server takes them. If it does not, each lease is renewed less
	// often; what was reached is one of the numbers.
	manyRenewers = 16
	// manyNodesQuiet is longer than nodesQuiet because two cores do not keep up with the renewals.
	manyNodesQuiet = 20 * time.Second
)

var (
	renewals      = metric{"lease renewals reached", "1/s"}
	nodeLoopsCPU  = metric{"CPU of the node controllers' own code", "% core"}
	memoryPerNode = metric{"resident per node", "KiB"}
)

// nodeControllers matches the functions of the three node controllers in a profile.
var nodeControllers = map[string]string{
	oursProgram:     `minikcm/pkg/controllers/(node|tainteviction|podgc)\.`,
	upstreamProgram: `k8s\.io/kubernetes/pkg/controller/(nodelifecycle|tainteviction|podgc)`,
}

// measureManyNodes compares a manager beside many nodes with itself beside none.
func measureManyNodes(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	empty, err := r.restingMemory(ctx, c)
	if err != nil {
		return nil, err
	}
	names := nodeNames(manyNodeCount)
	err = inParallel(ctx, writers, len(names), func(ctx context.Context, i int) error { return r.registerNode(ctx, names[i]) })
	if err != nil {
		return nil, err
	}
	k, stopBeating := r.startKubelets(ctx, manyRenewers, names)
	// Their first error ends the turn, so an early return need not report it.
	defer func() { _ = stopBeating() }()
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := r.awaitQuiet(ctx, manyNodesQuiet); err != nil {
		return nil, err
	}
	renewed, begin := k.renewed.Load(), time.Now()
	readings, err := r.whileHealthy(ctx, m)
	if err != nil {
		return nil, err
	}
	reached := float64(k.renewed.Load()-renewed) / time.Since(begin).Seconds()
	share, err := r.share(ctx, m, nodeControllers[c.program])
	if err != nil {
		return nil, err
	}
	used, err := memoryOf(m.Pid())
	if err != nil {
		return nil, err
	}
	silence, err := r.untilUnknown(ctx, k, names[manyNodeCount/2])
	if err != nil {
		return nil, err
	}
	return append(readings, reading{renewals, reached}, reading{nodeLoopsCPU, share},
		reading{memoryPerNode, 1024 * (used.resident - empty) / manyNodeCount}, reading{nodeUnknown, silence.Seconds()}), stopBeating()
}

// restingMemory is the resident memory, in MiB, of a manager that has nothing to do. It ends it.
func (r *rig) restingMemory(ctx context.Context, c contestant) (float64, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, 5*time.Second); err != nil {
		return 0, err
	}
	used, err := memoryOf(m.Pid())
	if err != nil {
		return 0, err
	}
	return used.resident, r.stopManagers()
}

// share profiles the manager and returns how much of a core, in percent, it spends in functions that match pattern and in what they
// call. Decoding what comes by watch is not part of that: all controllers share it.
func (r *rig) share(ctx context.Context, m *manager, pattern string) (float64, error) {
	body, err := m.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
	if err != nil {
		return 0, fmt.Errorf("profile: %w", err)
	}
	path := filepath.Join(r.dir, "share.pprof")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		return 0, fmt.Errorf("save profile: %w", err)
	}
	spent, err := timeIn(ctx, path, pattern)
	return 100 * spent.Seconds() / profileSeconds, err
}
