//go:build unix

package process

import (
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

func watchGroup(group int) (release func(), err error) {
	shell := exec.Command("/bin/sh", "-c", "read -r _; kill -s KILL -- -"+strconv.Itoa(group))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for us
	input, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher of the program: %w", err)
	}
	return func() {
		_ = shell.Process.Kill() // before the input ends
		_ = shell.Wait()
		_ = input.Close()
	}, nil
}
