package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

const (
	managerUser = "bench-manager"
	// settled is the pause between the start of a manager and the measurement.
	settled = 2 * time.Second
)

// manager is a running contestant.
type manager struct {
	*controlplane.Process
	port     int
	identity *rest.Config
	log      string
	expected atomic.Bool
}

func (r *rig) launch(c contestant, user string, more ...string) (*manager, error) {
	port, err := controlplane.FindPort()
	if err != nil {
		return nil, err
	}
	m := &manager{port: port, identity: r.cluster.ConfigFor(user, "system:masters")}
	kubeconfig := filepath.Join(r.dir, user+".kubeconfig")
	server := m.identity
	if r.proxy != nil && user == managerUser {
		server = r.proxy.Config()
	}
	if err := controlplane.WriteKubeconfig(kubeconfig, server); err != nil {
		return nil, err
	}
	if r.logs != "" {
		m.log = filepath.Join(r.logs, r.label+"-"+user+".log")
	}
	args := append(managerArgs(c, kubeconfig, r.controllers, port), more...)
	if m.Process, err = controlplane.Launch(r.programs[c.program], args...); err != nil {
		return nil, err
	}
	r.managers = append(r.managers, m)
	go func() {
		<-m.Done()
		if !m.expected.Load() {
			r.abort(fmt.Errorf("%s ended by itself; the end of its log:\n%s", c.program, m.tail()))
		}
	}()
	return m, nil
}

func (r *rig) launchWorking(ctx context.Context, c contestant, more ...string) (*manager, error) {
	m, err := r.launch(c, managerUser, more...)
	if err != nil {
		return nil, err
	}
	if err := r.awaitWork(ctx); err != nil {
		return nil, err
	}
	return m, pause(ctx, settled)
}

func (r *rig) awaitWork(ctx context.Context) error {
	pods, err := r.watchPods(ctx, readyNamespace)
	if err != nil {
		return err
	}
	defer pods.Stop()
	r.probes++
	probe := controlplane.ReplicaSet(readyNamespace, fmt.Sprintf("probe-%d", r.probes), 1)
	if _, err := r.client.AppsV1().ReplicaSets(readyNamespace).Create(ctx, probe, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ReplicaSet: %w", err)
	}
	if _, err := follow(ctx, pods, func(e watch.Event) bool { return e.Type == watch.Added }); err != nil {
		return fmt.Errorf("wait for the manager to work: %w", err)
	}
	return nil
}

func (r *rig) stopManagers() error {
	var errs []error
	for _, m := range r.managers {
		m.expected.Store(true)
		errs = append(errs, m.Kill())
		if m.log != "" {
			errs = append(errs, os.WriteFile(m.log, []byte(m.Output()), 0o600))
		}
	}
	r.managers = nil
	if r.proxy != nil {
		errs = append(errs, r.proxy.Stop())
		r.proxy = nil
	}
	return errors.Join(errs...)
}

// end sends a signal that is meant to end the manager.
func (m *manager) end(signal os.Signal) error {
	m.expected.Store(true)
	if err := m.Signal(signal); err != nil {
		return fmt.Errorf("send %v: %w", signal, err)
	}
	return nil
}

func (m *manager) tail() string {
	const most = 2000
	text := m.Output()
	return text[max(0, len(text)-most):]
}

func (m *manager) get(ctx context.Context, page string) ([]byte, error) {
	return controlplane.Page(ctx, m.identity, m.port, page)
}
