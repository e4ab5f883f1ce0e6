//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guardProcess kills the program when this process ends in any way, until release is called.
func guardProcess(program *os.Process) (release func(), err error) { return watchGroup(program.Pid) }

func interruptProcess(program *os.Process) error { return signalGroup(program, syscall.SIGTERM) }

func killGroup(program *os.Process) { _ = signalGroup(program, syscall.SIGKILL) }

// signalGroup signals the whole group: the program may be the child of a wrapper script.
func signalGroup(program *os.Process, s syscall.Signal) error {
	err := syscall.Kill(-program.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
