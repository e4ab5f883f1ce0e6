package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/test/controlplane"
)

const idle = 15 * time.Second

var (
	firstPod     = metric{"process start to first pod", "s"}
	cpuStarting  = metric{"manager CPU to first pod", "s"}
	residentIdle = metric{"resident, idle for 15 s", "MiB"}
	peakIdle     = metric{"resident, peak", "MiB"}
	binarySize   = metric{"binary", "MiB"}
)

func oneReplicaSet(ctx context.Context, r *rig) error {
	set := controlplane.ReplicaSet(benchNamespace, setName(0), 1)
	if _, err := r.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ReplicaSet: %w", err)
	}
	return nil
}

func measureStart(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	pods, err := r.watchPods(ctx, benchNamespace)
	if err != nil {
		return nil, err
	}
	defer pods.Stop()
	start := time.Now()
	m, err := r.launch(c, managerUser)
	if err != nil {
		return nil, err
	}
	end, err := follow(ctx, pods, nth(1, watch.Added))
	if err != nil {
		return nil, err
	}
	cpu, err := cpuSeconds(m.Pid())
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idle); err != nil {
		return nil, err
	}
	used, err := memoryOf(m.Pid())
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(r.programs[c.program])
	if err != nil {
		return nil, fmt.Errorf("measure binary: %w", err)
	}
	return []reading{
		{firstPod, end.Sub(start).Seconds()}, {cpuStarting, cpu}, {residentIdle, used.resident}, {peakIdle, used.peak},
		{binarySize, float64(file.Size()) / (1 << 20)},
	}, r.profileHeap(ctx, m, "idle")
}
