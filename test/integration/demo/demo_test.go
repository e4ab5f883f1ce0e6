// Package demo runs `make run`, with the race detector in the manager if this test has it.
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

func TestEverySceneEnds(t *testing.T) {
	t.Chdir("../../..")
	demo := filepath.Join(t.TempDir(), "demo")
	args := []string{"build", "-o", demo}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(t.Context(), "go", append(args, "./test/demo")...).CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	p := controlplane.StartProgram(t, demo, "-end", "-manager="+controlplane.ManagerBinary(t))
	code, err := p.Wait(10 * time.Minute)
	controlplane.Must(t, err)
	if code != 0 || !strings.Contains(p.Output(), "nothing is left running") {
		t.Errorf("exit code %d, want 0 after the last scene", code)
	}
}
