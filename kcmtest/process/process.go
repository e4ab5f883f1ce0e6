// Package process runs the program controller-manager beside the API server of a test, for tests that cannot have
// the version of Kubernetes that package kcmtest is made with. It needs nothing but the program.
//
// With env of envtest, of controller-runtime v0.21 or newer:
//
//	process.Start(t, env.KubeConfig, process.Binary("/usr/local/bin/controller-manager"))
//
// The program ends with the test, and with the process of the test if a time limit or a signal ends the process before
// its cleanups, except on Windows. A program in a container has to end on SIGTERM: a SIGKILL reaches only the client of
// the container.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// serverPatience bounds the wait of the program for the API server. The wait begins with the log line about the
	// wait: at once if the connection is rejected, and after 5 s, the timeout of a request, if the API server does not
	// respond.
	serverPatience = 1500 * time.Millisecond
	startPatience  = 30 * time.Second
	// stopPatience bounds the time between SIGTERM and SIGKILL.
	stopPatience = 5 * time.Second
)

// binaryEnv names the program where [Binary] does not.
const binaryEnv = "KCMTEST_BINARY"

// TB is the part of a test that [Start] needs: of *testing.T, *testing.B or ginkgo's GinkgoTB().
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Option configures [Start].
type Option func(*settings)

type settings struct {
	binary      string
	controllers []string
	grace       time.Duration
	log         io.Writer
	patience    time.Duration // for the program to stop
}

// Binary is the path of the program, or of a script that runs the program. The default is $KCMTEST_BINARY. A relative
// path begins in the directory of the test.
func Binary(path string) Option { return func(s *settings) { s.binary = path } }

// Controllers selects the controllers, as --controllers of the program does. The default is namespace,
// garbagecollector, replicaset and deployment.
func Controllers(names ...string) Option { return func(s *settings) { s.controllers = names } }

// NamespaceGrace is --namespace-deletion-grace-period of the program. The default, 0, suits a single API server.
func NamespaceGrace(d time.Duration) Option { return func(s *settings) { s.grace = d } }

// Log receives the log of the program. The default discards the log. No line is written after the end of the test.
func Log(w io.Writer) Option { return func(s *settings) { s.log = w } }

// Program is the result of [Start].
type Program struct {
	t    TB
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
	once sync.Once
}

// Start runs the program on the API server of a kubeconfig until the test ends, and returns when the program works. If
// the program cannot work, Start ends the test with a single line that names the reason. If the program ends before
// the test, the test fails.
func Start(t TB, kubeconfig []byte, options ...Option) *Program {
	t.Helper()
	s := &settings{
		binary: os.Getenv(binaryEnv), controllers: []string{"namespace", "garbagecollector", "replicaset", "deployment"}, patience: stopPatience,
	}
	for _, o := range options {
		o(s)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Program{t: t, stop: stop, done: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		defer close(p.done)
		p.err = s.runProgram(ctx, kubeconfig, sync.OnceFunc(func() { close(started) }))
	}()
	t.Cleanup(p.Stop)
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-started:
		return p
	case <-p.done:
		select {
		case <-started:
			return p // Stop reports the error
		default:
		}
	case <-patience.C:
		stop()
		<-p.done
		p.err = fmt.Errorf("%s does not work after %v", s.binary, startPatience)
	}
	err := p.err
	p.err = nil // Start reports the error
	t.Fatalf("kcmtest: %v", err)
	return p
}

// Stop stops the program before the test ends, and returns when the program has ended. A second call, or a call on nil
// after a failed Start, does nothing.
func (p *Program) Stop() {
	if p == nil {
		return
	}
	p.t.Helper()
	p.once.Do(func() {
		p.stop()
		<-p.done
		if p.err != nil {
			p.t.Errorf("kcmtest: the program ended by itself: %v", p.err)
		}
	})
}

// runProgram runs the program until ctx ends, and calls started when the program works.
func (s *settings) runProgram(ctx context.Context, kubeconfig []byte, started func()) error {
	if s.binary == "" {
		return fmt.Errorf("no program: give Binary or set %s to the path of controller-manager", binaryEnv)
	}
	if !slices.ContainsFunc(s.controllers, func(item string) bool { return !strings.HasPrefix(item, "-") }) {
		return errors.New("Controllers: name at least one, there is nothing to run")
	}
	if s.grace < 0 {
		return fmt.Errorf("NamespaceGrace(%v): must not be negative", s.grace)
	}
	dir, err := os.MkdirTemp("", "kcmtest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, s.programArguments(file)...)
	cmd.Cancel = func() error { return interruptProcess(cmd.Process) }
	cmd.WaitDelay = s.patience
	cmd.SysProcAttr = processAttributes()
	log := &follower{copy: s.log, started: started, giveUp: cancel}
	cmd.Stderr = log // a child of a wrapper script may keep the pipe of StderrPipe open beyond WaitDelay
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	release, err := guardProcess(cmd.Process)
	if err != nil {
		cancel()
		return errors.Join(err, cmd.Wait())
	}
	err = cmd.Wait()
	killGroup(cmd.Process) // children of a wrapper script
	release()
	last := log.flushLine()
	switch {
	case last.serverMissing:
		return errors.New(last.reason)
	case ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("%s: %w", cmp.Or(last.reason, s.binary), cmp.Or(err, errExitedWell))
}

var errExitedWell = errors.New("exit status 0")

func (s *settings) programArguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--controller-shutdown-timeout=2s",
		"--controllers=" + strings.Join(s.controllers, ","), "--namespace-deletion-grace-period=" + s.grace.String(),
	}
}
