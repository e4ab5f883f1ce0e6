//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guard kills the program when this process ends in any way, until release is called.
func guard(program *os.Process) (release func(), err error) { return watch(program.Pid) }

func interrupt(program *os.Process) error { return signal(program, syscall.SIGTERM) }

func kill(program *os.Process) { _ = signal(program, syscall.SIGKILL) }

// signal goes to the whole group: the program may be the child of a wrapper script.
func signal(program *os.Process, s syscall.Signal) error {
	err := syscall.Kill(-program.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
