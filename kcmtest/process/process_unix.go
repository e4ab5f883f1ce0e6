//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// attributes keep the terminal's Ctrl-C away from the program.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
