package process

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// guard does nothing: nothing that is always there would end the program.
func guard(*os.Process) (release func(), err error) { return func() {}, nil }

// interrupt kills: there is no signal that asks a process to end.
func interrupt(program *os.Process) error { return program.Kill() }

// kill has nothing to do.
func kill(*os.Process) {}
