package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

const (
	// benchNamespace holds the work, readyNamespace the ReplicaSets that show that a manager works.
	benchNamespace = "bench"
	readyNamespace = metav1.NamespaceDefault
	// writers is the number of concurrent requests while the API server is filled. A larger number is not faster on
	// two cores.
	writers = 8
)

// settings are the same for all turns.
type settings struct {
	programs    map[string]string // path by contestant.program
	controllers string            // value of --controllers
	logs        string
	profiles    string
}

type rig struct {
	settings
	label     string // of the turn, for names of files
	abort     context.CancelCauseFunc
	cluster   *controlplane.Cluster
	client    kubernetes.Interface
	dir       string
	apiServer int // process id
	managers  []*manager
	proxy     *faults.Proxy
	probes    int // ReplicaSets made by awaitWork so far
}

func newRig(ctx context.Context, s scenario, set settings) (_ *rig, err error) {
	set.controllers = strings.Join(append([]string{set.controllers}, s.adds...), ",")
	r := &rig{settings: set}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "minikcm-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if r.cluster, err = controlplane.Start(controlplane.Options{AuditPolicy: s.audit}); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	if r.apiServer, err = r.cluster.APIServerPID(); err != nil {
		return nil, err
	}
	if r.client, err = kubernetes.NewForConfig(protobuf(r.cluster.Config())); err != nil {
		return nil, fmt.Errorf("build a client: %w", err)
	}
	if err := r.createNamespace(ctx, benchNamespace); err != nil {
		return nil, err
	}
	if s.setup != nil {
		if err := s.setup(ctx, r); err != nil {
			return nil, fmt.Errorf("set up: %w", err)
		}
	}
	return r, nil
}

func (r *rig) stop() error {
	errs := []error{r.stopManagers()}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

type effort struct {
	wall      float64
	manager   float64 // processor time; 0 without a manager
	apiServer float64 // processor time
}

// effort measures work: processor time until work returns, wall time until the returned time.
func (r *rig) effort(ctx context.Context, m *manager, name string, work func() (time.Time, error)) (effort, error) {
	before, err := r.spent(m)
	if err != nil {
		return effort{}, err
	}
	profiled := r.profileCPU(ctx, m, name)
	start := time.Now()
	end, err := work()
	if err != nil {
		return effort{}, fmt.Errorf("%s: %w", name, err)
	}
	after, err := r.spent(m)
	if err != nil {
		return effort{}, err
	}
	return effort{
		wall: end.Sub(start).Seconds(), manager: after.manager - before.manager, apiServer: after.apiServer - before.apiServer,
	}, profiled()
}

// spent is the processor time used so far.
func (r *rig) spent(m *manager) (e effort, err error) {
	if m != nil {
		if e.manager, err = cpuSeconds(m.Pid()); err != nil {
			return effort{}, err
		}
	}
	e.apiServer, err = cpuSeconds(r.apiServer)
	return e, err
}

func protobuf(cfg *rest.Config) *rest.Config {
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	return cfg
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	for {
		done, err := ask()
		if err != nil || done {
			return err
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}
