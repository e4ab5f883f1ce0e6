package process

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func guard(*os.Process) (release func(), err error) { return func() {}, nil }

// interrupt kills the process, because Windows has no signal for an orderly end.
func interrupt(program *os.Process) error { return program.Kill() }

func kill(*os.Process) {}
