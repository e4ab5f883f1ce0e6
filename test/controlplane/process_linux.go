package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// childAttributes make a child die with us and keep the terminal's Ctrl-C, which is for us, away from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// standsStill returns nil if all threads of a process are stopped. It looks twice: once a thread has been seen stopped, no other can
// start a new one.
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
			// The state follows the program's name, which is in brackets and may hold any character.
			state := string(text[strings.LastIndexByte(string(text), ')')+1:])
			if state = strings.Fields(state)[0]; state != "T" {
				return fmt.Errorf("%s: state %s, want T", stat, state)
			}
		}
	}
	return nil
}
