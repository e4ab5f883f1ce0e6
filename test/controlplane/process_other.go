//go:build !linux

package controlplane

import "syscall"

// childAttributes keep the terminal's Ctrl-C, which is for us, away from a child.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// standsStill takes a process that was told to stop for stopped: only Linux tells of its threads.
func standsStill(int) error { return nil }
