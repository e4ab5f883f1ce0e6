package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const guardScript = `cat >/dev/null
for f in "$1"/*.pid; do
	[ -f "$f" ] || continue
	p=$(cat "$f")
	if [ ! -d /proc/self ] || grep -qs -- "$1" "/proc/$p/cmdline"; then kill -9 "$p"; fi
done
rm -rf -- "$1" 2>/dev/null || { sleep 1; rm -rf -- "$1"; } # what was killed may still have been writing
`

// guard is a small child process that cleans up behind us, even if we are killed or panic.
type guard struct {
	cmd  *exec.Cmd
	hold io.Closer
}

func startGuard(dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "controlplane-guard", dir)
	// The guard must outlive a Ctrl-C in the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &guard{cmd: cmd, hold: hold}, nil
}

func (g *guard) release() error {
	if err := g.hold.Close(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

func writeStarter(dir, name, program string) (starter, pidFile string, err error) {
	starter = filepath.Join(dir, name)
	pidFile = filepath.Join(dir, name+".pid")
	// envtest first runs every program with --help. That process is not the server.
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] || echo $$ >%s\nexec %s \"$@\"\n", shellQuote(pidFile), shellQuote(program))
	if err := os.WriteFile(starter, []byte(script), 0o700); err != nil {
		return "", "", fmt.Errorf("write starter of %s: %w", name, err)
	}
	return starter, pidFile, nil
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// readPID reads the process id in pidFile.
func readPID(pidFile string) (int, error) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, fmt.Errorf("read process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read process id: %w", err)
	}
	return pid, nil
}

// signalProcess sends sig to the process noted in pidFile, as [Process.Signal] does.
func signalProcess(pidFile string, sig syscall.Signal) error {
	pid, err := readPID(pidFile)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return awaitStopped(pid, sig)
}
