package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// childAttributes kill the child with this process and keep the terminal's Ctrl-C from the child.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func standsStill(pid int) error {
	for range 2 {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		if len(stats) == 0 {
			return fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
		}
		for _, stat := range stats {
			text, err := os.ReadFile(stat)
			if err != nil {
				return fmt.Errorf("thread has ended: %w", err)
			}
			state := string(text[strings.LastIndexByte(string(text), ')')+1:])
			if state = strings.Fields(state)[0]; state != "T" {
				return fmt.Errorf("%s: state %s, want T", stat, state)
			}
		}
	}
	return nil
}
