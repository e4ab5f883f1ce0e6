package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

const (
	leaderUser, standbyUser = "bench-leader", "bench-standby"
	standbyWarm             = 5 * time.Second
	// workPeriod is the interval of pod creations, and so the resolution of hand-over times.
	workPeriod  = 20 * time.Millisecond
	workBefore  = time.Second
	auditPeriod = 25 * time.Millisecond
	// busyPods is the most pods that either program creates in one sync of a ReplicaSet.
	busySets, busyPods = 10, 500
)

var (
	takeOver    = metric{"signal to first pod of the other", "s"}
	processGone = metric{"signal to end of the process", "s"}
)

func measureHandOver(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	return measureTakeOver(ctx, r, c, syscall.SIGTERM, r.askForPods)
}

func measureBusyHandOver(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	return measureTakeOver(ctx, r, c, syscall.SIGTERM, r.askForManyPods)
}

func measureCrash(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	return measureTakeOver(ctx, r, c, syscall.SIGKILL, r.askForPods)
}

func measureTakeOver(
	ctx context.Context, r *rig, c contestant, signal os.Signal, ask func(context.Context) error,
) ([]reading, error) {
	leader, err := r.launchPair(ctx, c)
	if err != nil {
		return nil, err
	}
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	work := make(chan error, 1)
	go func() { work <- ask(working) }()
	if err := pause(ctx, workBefore); err != nil {
		return nil, err
	}
	sent := time.Now()
	if err := leader.end(signal); err != nil {
		return nil, err
	}
	gone := make(chan time.Time, 1)
	go func() { <-leader.Done(); gone <- time.Now() }()
	first, err := r.firstPodOf(ctx, standbyUser)
	if err != nil {
		return nil, err
	}
	stopWork()
	if err := <-work; err != nil {
		return nil, err
	}
	select {
	case ended := <-gone:
		return []reading{{takeOver, first.Sub(sent).Seconds()}, {processGone, ended.Sub(sent).Seconds()}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// launchPair starts a leader and, when that works, a standby.
func (r *rig) launchPair(ctx context.Context, c contestant) (leader *manager, err error) {
	if leader, err = r.launch(c, leaderUser, "--leader-elect=true"); err != nil {
		return nil, err
	}
	if err := r.awaitWork(ctx); err != nil {
		return nil, err
	}
	if _, err := r.launch(c, standbyUser, "--leader-elect=true"); err != nil {
		return nil, err
	}
	return leader, pause(ctx, standbyWarm)
}

func (r *rig) askForPods(ctx context.Context) error {
	const name = "growing"
	set := controlplane.ReplicaSet(benchNamespace, name, 0)
	if _, err := r.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ReplicaSet: %w", err)
	}
	for replicas := 1; ; replicas++ {
		switch err := r.scale(ctx, name, replicas); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if pause(ctx, workPeriod) != nil {
			return nil
		}
	}
}

// askForManyPods creates more ReplicaSets than a leader can fill before its signal, so its syncs are long.
func (r *rig) askForManyPods(ctx context.Context) error {
	for i := range busySets {
		set := controlplane.ReplicaSet(benchNamespace, setName(i), busyPods)
		if _, err := r.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return ignoreEnd(ctx, fmt.Errorf("create ReplicaSet: %w", err))
		}
	}
	<-ctx.Done()
	return nil
}

func (r *rig) firstPodOf(ctx context.Context, user string) (first time.Time, err error) {
	err = poll(ctx, auditPeriod, func() (bool, error) {
		creates, err := r.cluster.ReadAuditLog(requestsOf(user))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		done := creates.Select(controlplane.ByCode(201))
		if len(done) > 0 {
			first = earliest(done)
		}
		return len(done) > 0, err
	})
	return first, err
}

func earliest(events []auditv1.Event) time.Time {
	first := events[0].StageTimestamp.Time
	for _, e := range events[1:] {
		if e.StageTimestamp.Time.Before(first) {
			first = e.StageTimestamp.Time
		}
	}
	return first
}
