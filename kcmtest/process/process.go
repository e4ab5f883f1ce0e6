// Package process runs the program controller-manager beside the API server of a test, for tests that cannot have the version of Kubernetes that
// package kcmtest is made with. It needs nothing but the program.
//
//	process.Start(t, env.KubeConfig, process.Binary("/usr/local/bin/controller-manager")) // env is envtest's Environment, of controller-runtime v0.21 or newer
//
// The program ends with the test, and with the process of the test if that ends before its cleanups, because of a time limit or a signal. On Windows it
// stays then, and so does one in a container, which ends with the test only if it ends on SIGTERM: a SIGKILL reaches the client that started it.
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
	"strings"
	"sync"
	"time"
)

const (
	// serverPatience is how long the program may wait for the API server, which it would do for ever. It begins when the program says that it waits: at once
	// if nobody listens, after the time limit of a request, 5 s, if nobody answers.
	serverPatience = 1500 * time.Millisecond
	// startPatience is how long the program may take until it works.
	startPatience = 30 * time.Second
	// stopPatience is how long it may take to stop, before it is killed.
	stopPatience = 5 * time.Second
)

// binaryEnv names the program where [Binary] does not.
const binaryEnv = "KCMTEST_BINARY"

// TB is what [Start] needs of a test: of *testing.T, *testing.B, or ginkgo's GinkgoTB().
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Option changes what is run, and how.
type Option func(*settings)

type settings struct {
	binary      string
	controllers []string
	grace       time.Duration
	log         io.Writer
	patience    time.Duration // for the program to stop
}

// Binary is the path of the program, or of a script that runs it. Without it that is $KCMTEST_BINARY. A path that is not absolute begins in the folder of the test.
func Binary(path string) Option { return func(s *settings) { s.binary = path } }

// Controllers says which controllers run, as --controllers of the program does. Without it these are namespace, garbagecollector, replicaset and deployment.
func Controllers(names ...string) Option { return func(s *settings) { s.controllers = names } }

// NamespaceGrace is --namespace-deletion-grace-period of the program. The default, 0, is for exactly one API server.
func NamespaceGrace(d time.Duration) Option { return func(s *settings) { s.grace = d } }

// Log is where the program's log goes; without it, nowhere. Nothing is written once the test has ended.
func Log(w io.Writer) Option { return func(s *settings) { s.log = w } }

// Program is what [Start] has started.
type Program struct {
	t    TB
	stop context.CancelFunc
	done chan struct{}
	err  error // valid once done is closed
	once sync.Once
}

// Start runs the program on the API server of a kubeconfig until the test ends, and returns when it works. If it cannot, it ends the test with
// one line that says why. If the program ends before the test, the test fails.
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
		p.err = s.run(ctx, kubeconfig, sync.OnceFunc(func() { close(started) }))
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
			return p // and Stop tells how it ended
		default:
		}
	case <-patience.C:
		stop()
		<-p.done
		p.err = fmt.Errorf("%s does not work after %v", s.binary, startPatience)
	}
	err := p.err
	p.err = nil // it is told here
	t.Fatalf("kcmtest: %v", err)
	return p
}

// Stop stops the program before the test ends, and returns when it has ended. It may be called again, or on nil after a Start that failed,
// and does nothing then.
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

// run runs the program until ctx ends, and calls started when it works.
func (s *settings) run(ctx context.Context, kubeconfig []byte, started func()) error {
	if s.binary == "" {
		return fmt.Errorf("no program: give Binary or set %s to the path of controller-manager", binaryEnv)
	}
	if len(s.controllers) == 0 {
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
	cmd := exec.CommandContext(ctx, s.binary, s.arguments(file)...)
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = s.patience
	cmd.SysProcAttr = attributes()
	log := &follower{copy: s.log, started: started, giveUp: cancel}
	cmd.Stderr = log // StderrPipe would be read beyond WaitDelay, while a child of a wrapper script has it open
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	release, err := guard(cmd.Process)
	if err != nil {
		cancel()
		return errors.Join(err, cmd.Wait())
	}
	err = cmd.Wait()
	kill(cmd.Process) // what a wrapper script has left
	release()
	last := log.end()
	switch {
	case last.away:
		return errors.New(last.why)
	case ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("%s: %w", cmp.Or(last.why, s.binary), cmp.Or(err, errExitedWell))
}

// errExitedWell: the program ended as if it had been told to.
var errExitedWell = errors.New("exit status 0")

// arguments are the flags of a program that is alone with its API server.
func (s *settings) arguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--controller-shutdown-timeout=2s",
		"--controllers=" + strings.Join(s.controllers, ","), "--namespace-deletion-grace-period=" + s.grace.String(),
	}
}
