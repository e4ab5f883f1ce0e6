package process

import (
	"os"
	"syscall"
)

// attributes let the program end with us, however we end, and keep the terminal's Ctrl-C away from it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// guard has nothing to do.
func guard(int) (release func(), err error) { return func() {}, nil }

func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
