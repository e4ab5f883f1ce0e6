package process

import (
	"os"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return nil }

func guardProcess(*os.Process) (release func(), err error) { return func() {}, nil }

// interruptProcess kills the process, because Windows has no signal for an orderly end.
func interruptProcess(program *os.Process) error { return program.Kill() }

func killGroup(*os.Process) {}
