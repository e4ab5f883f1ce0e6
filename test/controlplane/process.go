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
	// logTimeout bounds the wait for log lines, for the end of a process and for SIGSTOP.
	logTimeout    = 3 * time.Minute
	statusTimeout = 10 * time.Second
	dumpLimit     = 64 << 10
)

// Process is a child process. On Linux the end of this process kills the child.
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
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to the process. On Linux Signal returns after SIGSTOP when no thread of the process runs.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return awaitStopped(p.Pid(), sig)
}

func awaitStopped(pid int, sig os.Signal) error {
	if sig != syscall.SIGSTOP {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	return pollUntil(ctx, func(context.Context) error { return standsStill(pid) })
}

// Kill ends the process with SIGKILL and waits for the end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process: %w", err)
	}
	<-p.done
	return nil
}

func (p *Process) Wait(timeout time.Duration) (exitCode int, err error) {
	select {
	case <-p.done:
		return p.ExitCode(), nil
	case <-time.After(timeout):
		return -1, fmt.Errorf("process %d has not ended within %v", p.Pid(), timeout)
	}
}

// EndsWith fails the test unless the process ends within a minute, with the exit code.
func (p *Process) EndsWith(t testing.TB, exitCode int) {
	t.Helper()
	if code, err := p.Wait(time.Minute); err != nil || code != exitCode {
		t.Errorf("process %d ended with exit code %d, error %v; want %d", p.Pid(), code, err, exitCode)
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

func (p *Process) Output() string { return p.output.String() }

// WaitForLog waits until the process has printed substring, at most three minutes.
func (p *Process) WaitForLog(t testing.TB, substring string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	ended := false
	err := pollUntil(ctx, func(context.Context) error {
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
	Must(t, err)
	if !strings.Contains(p.Output(), substring) {
		t.Fatalf("process %d ended with exit code %d without printing %q", p.Pid(), p.ExitCode(), substring)
	}
}

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
