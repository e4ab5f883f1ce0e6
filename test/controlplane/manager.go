package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var managerBinary = sync.OnceValues(BuildManager)

// ManagerBinary is [BuildManager] for tests, with a single build per process.
func ManagerBinary(t testing.TB) string {
	t.Helper()
	path, err := managerBinary()
	Must(t, err)
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

// StartProcess starts the manager as a process. The end of the test kills the process. A data race in the process fails
// the test. A failed test logs the output.
func StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	return StartProgram(t, ManagerBinary(t), args...)
}

func StartProgram(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	p, err := Launch(program, args...)
	Must(t, err)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		out := p.Output()
		if strings.Contains(out, "DATA RACE") {
			t.Error("a process has a data race")
		}
		if !t.Failed() {
			return
		}
		t.Logf("%s (process %d, exit code %d) printed:\n%s",
			filepath.Base(program), p.Pid(), p.ExitCode(), out[max(0, len(out)-dumpLimit):])
	})
	return p
}
