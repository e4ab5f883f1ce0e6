package process

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// interrupt kills: there is no signal that asks a process to end.
func interrupt(p *os.Process) error { return p.Kill() }
