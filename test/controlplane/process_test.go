package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestStoppedProcessStandsStill(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a process's threads")
	}
	p := StartProgram(t, "/bin/sh", "-c", "echo spinning; while :; do :; done")
	p.WaitForLog(t, "spinning")
	if err := standsStill(p.Pid()); err == nil {
		t.Error("a process at work is taken for a stopped one")
	}
	Must(t, p.Signal(syscall.SIGSTOP))
	if err := standsStill(p.Pid()); err != nil {
		t.Errorf("after SIGSTOP: %v", err)
	}
	Must(t, p.Kill())
	if err := standsStill(p.Pid()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: %v, want %v", err, os.ErrProcessDone)
	}
}

// TestGuardCleansUpBehindADeadProcess plays the death of the process that holds the guard by closing the guard's input.
func TestGuardCleansUpBehindADeadProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	Must(t, os.Mkdir(dir, 0o700))
	ours, err := Launch("/bin/sh", "-c", "while :; do sleep 0.05; done", dir)
	Must(t, err)
	theirs := StartProgram(t, "/bin/sh", "-c", "while :; do sleep 0.05; done")
	for name, pid := range map[string]int{"ours": ours.Pid(), "theirs": theirs.Pid()} {
		Must(t, os.WriteFile(filepath.Join(dir, name+".pid"), fmt.Appendln(nil, pid), 0o600))
	}
	g, err := startGuard(dir)
	Must(t, err)
	Must(t, g.release())
	if _, err := ours.Wait(time.Minute); err != nil {
		t.Errorf("server of the dead process: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("stat folder: %v, want not exist", err)
	}
	if _, err := theirs.Wait(200 * time.Millisecond); err == nil {
		t.Error("the guard has killed a process that only has the number of a server")
	}
}
