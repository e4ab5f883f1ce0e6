package controlplane

import "syscall"

// childAttributes make a child die with us and keep the terminal's Ctrl-C, which is for us, away from it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
