package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

const longestWrite = 34 * time.Second

// life is a process of a slot. signal is set before a signal that is meant to end the process.
type life struct {
	*controlplane.Process
	from, to time.Time
	signal   os.Signal
}

func (l *life) isRunning() bool {
	select {
	case <-l.Done():
		return false
	default:
		return true
	}
}

// slot is a manager with one process after another.
type slot struct {
	*rig
	name     string
	args     []string
	port     int
	identity *rest.Config
	proxy    *faults.Proxy

	troubled sync.Mutex // held by a fault that stops the responses of the process

	lock        sync.Mutex
	lives       []*life
	unreachable []span
	requests    []faults.Request // see readJournal
}

func (r *rig) newSlot(name string) *slot {
	s := &slot{rig: r, name: name, port: must.Get(controlplane.FindPort()), identity: r.cluster.ConfigFor(name, "system:masters")}
	s.proxy = must.Get(faults.Start(s.identity, faults.WithName(name), faults.WithSeed(r.options.seed)))
	r.onTearDown(s.proxy.Stop)
	kubeconfig := filepath.Join(r.dir, name+".kubeconfig")
	must.Succeed(controlplane.WriteKubeconfig(kubeconfig, s.proxy.Config()))
	s.args = []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		fmt.Sprintf("--secure-port=%d", s.port), "--bind-address=127.0.0.1", "-v=2",
		"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=2500ms", "--leader-elect-retry-period=500ms",
		"--node-monitor-period=500ms", "--node-monitor-grace-period=" + nodeGrace.String(), "--node-startup-grace-period=8s",
		"--node-eviction-rate=10", "--secondary-node-eviction-rate=10", "--large-cluster-size-threshold=0",
		"--terminated-pod-gc-threshold=20", "--namespace-deletion-grace-period=" + r.namespaceGrace, "--controller-shutdown-timeout=5s",
	}
	return s
}

func (s *slot) startProcess() {
	if s.runningLife() != nil {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	l := &life{Process: must.Get(controlplane.Launch(s.options.manager, s.args...)), from: time.Now()}
	s.lives = append(s.lives, l)
	n := len(s.lives)
	go func() {
		<-l.Done()
		s.judgeEnd(l, n)
	}()
}

func (s *slot) judgeEnd(l *life, n int) {
	s.lock.Lock()
	l.to = time.Now()
	signal := l.signal
	s.lock.Unlock()
	_ = os.WriteFile(filepath.Join(s.logs, fmt.Sprintf("%s-%d.log", s.name, n)), []byte(l.Output()), 0o600)
	switch code := l.ExitCode(); {
	case signal == nil:
		s.violate(s.name, fmt.Sprintf("process %d of %s ended by itself with exit code %d", n, s.name, code))
	case l.Output() == "":
	case signal == syscall.SIGTERM && code == 1 && s.slowed.within(l.to.Add(-longestWrite), l.to) > 0:
	case signal == syscall.SIGTERM && code != 0:
		s.violate(s.name, fmt.Sprintf("process %d of %s ended with exit code %d after SIGTERM, want 0", n, s.name, code))
	}
}

func (s *slot) allLives() []*life {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.lives)
}

func (s *slot) runningLife() *life {
	if lives := s.allLives(); len(lives) > 0 && lives[len(lives)-1].isRunning() {
		return lives[len(lives)-1]
	}
	return nil
}

func (s *slot) setSignal(l *life, signal os.Signal) {
	s.lock.Lock()
	defer s.lock.Unlock()
	l.signal = signal
}

// endProcess sends a signal that is meant to end the process and waits for the end.
func (s *slot) endProcess(signal syscall.Signal, patience time.Duration) {
	l := s.runningLife()
	if l == nil {
		return
	}
	s.setSignal(l, signal)
	if err := l.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		must.Succeed(err)
	}
	if _, err := l.Wait(patience); err != nil {
		if signal == syscall.SIGTERM {
			s.violate(s.name, fmt.Sprintf("%s has not ended within %v of SIGTERM", s.name, patience))
		}
		s.setSignal(l, syscall.SIGKILL)
		must.Succeed(l.Kill())
	}
}

// size is the need of a manager.
type size struct {
	leader     bool
	goroutines float64
	memory     float64 // resident, MiB
	watches    int
}

func (s *slot) measureSize(ctx context.Context) size {
	text := must.Get(controlplane.Page(ctx, s.identity, s.port, "/metrics"))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families := must.Get(parser.TextToMetricFamilies(bytes.NewReader(text)))
	gauge := func(name string) float64 {
		if f := families[name]; f != nil && len(f.Metric) > 0 {
			return f.Metric[0].GetGauge().GetValue()
		}
		must.Succeed(fmt.Errorf("%s serves no metric %s", s.name, name))
		return 0
	}
	return size{
		leader: gauge("leader_election_master_status") > 0, goroutines: gauge("go_goroutines"),
		memory:  gauge("process_resident_memory_bytes") / (1 << 20),
		watches: s.proxy.OpenWatches(faults.Watches()) - s.proxy.OpenWatches(faults.Watches(widgets)),
	}
}

func (s *slot) addUnreachable(when span) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.unreachable = append(s.unreachable, when)
}

// readJournal returns the requests of the whole run.
func (s *slot) readJournal() []faults.Request {
	if s.requests == nil {
		s.requests = s.proxy.Requests()
	}
	return s.requests
}
