package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// logTimeout bounds the wait for a line in a child's output, and for a child that was told to end or to stand still.
	logTimeout = 3 * time.Minute
	// statusTimeout bounds a status write that meets other writers.
	statusTimeout = 10 * time.Second
	// dumpLimit is how much of a child's output a failed test shows, in bytes.
	dumpLimit = 64 << 10
)

// Process is a child process. On Linux it dies with us.
type Process struct {
	cmd    *exec.Cmd
	output lockedBuffer
	done   chan struct{}
}

// Launch starts program with args and collects what it prints.
func Launch(program string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.WaitDelay = time.Second // a grandchild holding the pipe must not hold us
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code tells all
	}()
	return p, nil
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to the process. After SIGSTOP it returns when no thread of the process runs any more (on Linux).
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return settle(p.Pid(), sig)
}

// settle waits until SIGSTOP, which the kernel hands from thread to thread, has taken effect; other signals are not waited for.
func settle(pid int, sig os.Signal) error {
	if sig != syscall.SIGSTOP {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	return poll(ctx, func(context.Context) error { return standsStill(pid) })
}

// Kill ends the process with SIGKILL and waits until it is gone. If it has ended already, nothing happens.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process: %w", err)
	}
	<-p.done
	return nil
}

// Wait waits until the process has ended, at most timeout, and returns its exit code.
func (p *Process) Wait(timeout time.Duration) (exitCode int, err error) {
	select {
	case <-p.done:
		return p.ExitCode(), nil
	case <-time.After(timeout):
		return -1, fmt.Errorf("process %d has not ended within %v", p.Pid(), timeout)
	}
}

// ExitCode is -1 while the process runs and if a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Output is everything the process has printed so far.
func (p *Process) Output() string { return p.output.String() }

// WaitForLog waits until the process has printed substring. It ends the test if that takes three minutes, or if the
// process ends without.
func (p *Process) WaitForLog(t testing.TB, substring string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	ended := false
	err := poll(ctx, func(context.Context) error {
		select {
		case <-p.done:
			ended = true // all output is in now
		default:
		}
		if strings.Contains(p.Output(), substring) || ended {
			return nil
		}
		return fmt.Errorf("process %d has not printed %q", p.Pid(), substring)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.Output(), substring) {
		t.Fatalf("process %d ended with exit code %d without printing %q", p.Pid(), p.ExitCode(), substring)
	}
}

// lockedBuffer collects what a child prints on two streams while tests read it.
type lockedBuffer struct {
	lock sync.Mutex
	buf  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.buf.String()
}
