package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"minikcm/internal/fakeapi"
)

// helper is set for the process that TestSignalsWithBlockedLog starts.
const helper = "CONTROLLER_MANAGER_SIGNALS"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	ctx := untilSignalled()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("stopping")
	select {}
}

// The first signal ends the work and the second ends the process, although the log has no reader.
func TestSignalsWithBlockedLog(t *testing.T) {
	unread, full, err := os.Pipe()
	fakeapi.NoError(t, err)
	defer unread.Close()
	defer full.Close()
	fakeapi.NoError(t, fill(full))
	process := exec.Command(os.Args[0])
	process.Env, process.Stderr = append(os.Environ(), helper+"=1"), full
	stdout := fakeapi.Must(process.StdoutPipe())
	fakeapi.NoError(t, process.Start())
	defer process.Process.Kill()
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{"ready", "stopping"} {
		if lines.Scan(); lines.Text() != want {
			t.Fatalf("the process printed %q, want %q", lines.Text(), want)
		}
		fakeapi.NoError(t, process.Process.Signal(syscall.SIGTERM))
	}
	var exit *exec.ExitError
	if err := process.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the process has ended with %v, want code 1", err)
	}
}

// fill writes to a pipe until it takes no more.
func fill(pipe *os.File) error {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) {
		_ = syscall.SetNonblock(int(fd), true)
		for err == nil {
			_, err = syscall.Write(int(fd), make([]byte, 512))
		}
		for err = nil; err == nil; {
			_, err = syscall.Write(int(fd), []byte{0})
		}
		_ = syscall.SetNonblock(int(fd), false)
	})
}
