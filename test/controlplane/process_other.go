//go:build !linux

package controlplane

import "syscall"

// childAttributes keep the terminal's Ctrl-C, which is for us, away from a child.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
