//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// attributes keep the terminal's Ctrl-C away from the program.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guard ends the program when we end, however that is, until it is released.
func guard(pid int) (release func(), err error) { return watch(pid) }

func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
