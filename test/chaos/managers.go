package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func managerFlags(namespaceGrace string) []string {
	return []string{
		"--controllers=*,deployment,garbagecollector",
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=2500ms", "--leader-elect-retry-period=500ms",
		"--node-monitor-period=500ms", "--node-monitor-grace-period=" + nodeGrace.String(), "--node-startup-grace-period=8s",
		"--node-eviction-rate=10", "--secondary-node-eviction-rate=10", "--large-cluster-size-threshold=0",
		"--terminated-pod-gc-threshold=20", "--namespace-deletion-grace-period=" + namespaceGrace,
		"--controller-shutdown-timeout=5s", "--bind-address=127.0.0.1", "-v=2",
	}
}

const longestWrite = 34 * time.Second

type life struct {
	*controlplane.Process
	from     time.Time
	to       time.Time
	signal   os.Signal
	stopping bool
}

func (l *life) runs() bool {
	select {
	case <-l.Done():
		return false
	default:
		return true
	}
}

type slot struct {
	name     string
	program  string
	args     []string
	port     int
	identity *rest.Config
	proxy    *faults.Proxy
	logs     string // folder
	faulty   func(of, what string)
	slowed   *outages // of admission

	troubled sync.Mutex

	lock        sync.Mutex
	lives       []*life
	unreachable []span
	requests    []faults.Request // see journal
}

func (r *rig) newSlot(name string) (*slot, error) {
	port, err := controlplane.FindPort()
	if err != nil {
		return nil, err
	}
	s := &slot{
		name: name, program: r.options.manager, port: port, logs: r.logs, faulty: r.violate, slowed: &r.slowed,
		identity: r.cluster.ConfigFor(name, "system:masters"),
	}
	if s.proxy, err = faults.Start(s.identity, faults.WithName(name), faults.WithSeed(r.options.seed)); err != nil {
		return nil, err
	}
	r.onStop(s.proxy.Stop)
	kubeconfig := filepath.Join(r.dir, name+".kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, s.proxy.Config()); err != nil {
		return nil, err
	}
	s.args = append(managerFlags(r.namespaceGrace), "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, fmt.Sprintf("--secure-port=%d", port))
	return s, nil
}

func (s *slot) start() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if n := len(s.lives); n > 0 && s.lives[n-1].runs() {
		return nil
	}
	p, err := controlplane.Launch(s.program, s.args...)
	if err != nil {
		return err
	}
	l := &life{Process: p, from: time.Now()}
	s.lives = append(s.lives, l)
	n := len(s.lives)
	go func() {
		<-p.Done()
		s.ended(l, n)
	}()
	return nil
}

func (s *slot) ended(l *life, n int) {
	s.lock.Lock()
	l.to = time.Now()
	stopping, signal := l.stopping, l.signal
	s.lock.Unlock()
	_ = os.WriteFile(filepath.Join(s.logs, fmt.Sprintf("%s-%d.log", s.name, n)), []byte(l.Output()), 0o600)
	switch code := l.ExitCode(); {
	case !stopping:
		s.faulty(s.name, fmt.Sprintf("process %d of %s ended by itself with exit code %d", n, s.name, code))
	case l.Output() == "":
	case signal == syscall.SIGTERM && code == 1 && s.slowed.within(l.to.Add(-longestWrite), l.to) > 0:
	case signal == syscall.SIGTERM && code != 0:
		s.faulty(s.name, fmt.Sprintf("process %d of %s ended with exit code %d after SIGTERM, want 0", n, s.name, code))
	}
}

func (s *slot) running() *life {
	s.lock.Lock()
	defer s.lock.Unlock()
	if n := len(s.lives); n > 0 && s.lives[n-1].runs() {
		return s.lives[n-1]
	}
	return nil
}

func (s *slot) all() []*life {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]*life(nil), s.lives...)
}

// end sends a signal that is meant to end the process and waits for that.
func (s *slot) end(signal syscall.Signal, patience time.Duration) error {
	l := s.running()
	if l == nil {
		return nil
	}
	s.lock.Lock()
	l.stopping, l.signal = true, signal
	s.lock.Unlock()
	if err := l.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if _, err := l.Wait(patience); err != nil {
		if signal == syscall.SIGTERM {
			s.faulty(s.name, fmt.Sprintf("%s has not ended within %v of SIGTERM", s.name, patience))
		}
		s.lock.Lock()
		l.signal = syscall.SIGKILL
		s.lock.Unlock()
		return l.Kill()
	}
	return nil
}

// get reads a page of the manager.
func (s *slot) get(ctx context.Context, page string) (string, error) {
	body, err := controlplane.Page(ctx, s.identity, s.port, page)
	return string(body), err
}

type size struct {
	leader     bool
	goroutines float64
	memory     float64 // resident, MiB
	watches    int
}

func (s *slot) measure(ctx context.Context) (size, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return size{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return size{}, fmt.Errorf("parse metrics of %s: %w", s.name, err)
	}
	gauge := func(name string) (float64, error) {
		f := families[name]
		if f == nil || len(f.Metric) == 0 {
			return 0, fmt.Errorf("%s serves no metric %s", s.name, name)
		}
		return f.Metric[0].GetGauge().GetValue(), nil
	}
	leads, err1 := gauge("leader_election_master_status")
	goroutines, err2 := gauge("go_goroutines")
	memory, err3 := gauge("process_resident_memory_bytes")
	return size{
		leader: leads > 0, goroutines: goroutines, memory: memory / (1 << 20),
		watches: s.proxy.OpenWatches(faults.Watches()) - s.proxy.OpenWatches(faults.Watches(widgets.Resource)),
	}, errors.Join(err1, err2, err3)
}

func (s *slot) cutOff(when span) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.unreachable = append(s.unreachable, when)
}
