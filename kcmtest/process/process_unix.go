//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
)

// attributes give the program a group of its own: with whatever it starts it can be told to end, and a terminal's Ctrl-C is not for it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guard kills the program when this process ends, however that is, until it is released.
func guard(program *os.Process) (release func(), err error) { return watch(program.Pid) }

// interrupt asks the program to end.
func interrupt(program *os.Process) error { return signal(program, syscall.SIGTERM) }

// kill ends what is left of the program.
func kill(program *os.Process) { _ = signal(program, syscall.SIGKILL) }

// signal goes to the whole group: the program may be the child of a wrapper script.
func signal(program *os.Process, s syscall.Signal) error {
	err := syscall.Kill(-program.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
