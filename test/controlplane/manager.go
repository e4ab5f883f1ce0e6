package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

var managerBinary = sync.OnceValues(BuildManager)

// ManagerBinary is [BuildManager] for tests, with a single build per process.
func ManagerBinary(t testing.TB) string {
	t.Helper()
	path, err := managerBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BuildManager builds cmd/controller-manager, with the race detector if this test has it. A file lock keeps test
// packages that run at the same time from writing the program at once.
func BuildManager() (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "controller-manager")
	args := []string{"build"}
	if raceEnabled {
		path += "-race"
		args = append(args, "-race")
	}
	lock, err := os.Create(path + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	cmd := exec.Command("go", append(args, "-o", path, "./cmd/controller-manager")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build controller-manager: %w\n%s", err, out)
	}
	return path, nil
}

// StartProcess starts the manager as a process. The end of the test kills the process. A failed test logs the output.
func StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	return StartProgram(t, ManagerBinary(t), args...)
}

func StartProgram(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	p, err := Launch(program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		out := p.Output()
		t.Logf("%s (process %d, exit code %d) printed:\n%s",
			filepath.Base(program), p.Pid(), p.ExitCode(), out[max(0, len(out)-dumpLimit):])
	})
	return p
}

// Manager is a manager running in this process.
type Manager struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
	taken  bool  // by Wait
}

// StartManager runs cmd with args in this process until the test ends. The command is a parameter so that tests of
// packages below pkg/app can import this package.
func StartManager(t testing.TB, cmd *cobra.Command, args ...string) *Manager {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{cancel: cancel, done: make(chan struct{})}
	cmd.SetArgs(args)
	go func() {
		defer close(m.done)
		m.err = cmd.ExecuteContext(ctx)
	}()
	t.Cleanup(func() { m.Stop(t) })
	return m
}

// Done is closed when the manager has returned.
func (m *Manager) Done() <-chan struct{} { return m.done }

// Wait waits until the manager returns, at most timeout, and returns the error. Stop does not report that error again.
func (m *Manager) Wait(t testing.TB, timeout time.Duration) error {
	t.Helper()
	select {
	case <-m.done:
	case <-time.After(timeout):
		t.Fatalf("manager has not returned within %v", timeout)
	}
	m.taken = true
	return m.err
}

// Stop cancels the manager's context and waits for the end. An error of the manager fails the test. A second call does
// nothing.
func (m *Manager) Stop(t testing.TB) {
	t.Helper()
	m.cancel()
	select {
	case <-m.done:
	case <-time.After(logTimeout):
		t.Errorf("manager has not returned within %v of being cancelled", logTimeout)
		return
	}
	if m.err != nil && !m.taken && !errors.Is(m.err, context.Canceled) {
		t.Errorf("manager: %v", m.err)
	}
	m.taken = true
}
