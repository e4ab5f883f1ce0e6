// Package demo plays what `make run` shows, with a manager that has the race detector if this test has it.
package demo

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// Each scene waits for what it tells of, and ends the demo if that does not come.
func TestEverySceneComesToItsEnd(t *testing.T) {
	t.Chdir("../../..") // where `make run` starts it
	demo := filepath.Join(t.TempDir(), "demo")
	args := []string{"build", "-o", demo}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // as everything was compiled for this test
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "./test/demo")...).CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	p := controlplane.StartProgram(t, demo, "-end", "-manager="+controlplane.ManagerBinary(t))
	code, err := p.Wait(10 * time.Minute) // it has a time of its own for each thing that it waits for
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 || !strings.Contains(p.Output(), "nothing is left running") {
		t.Errorf("exit code %d, want 0 after the last scene", code)
	}
}
