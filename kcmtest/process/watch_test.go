//go:build unix

package process

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const watcherEnv = "KCMTEST_WATCHER"

func TestMain(m *testing.M) {
	if os.Getenv(watcherEnv) != "" {
		beWatcher()
	}
	os.Exit(m.Run())
}

func beWatcher() {
	program := exec.Command("/bin/sh", "-c", "sh -c 'while :; do sleep 0.1; done'; :") // behind a script
	program.Stdout, program.SysProcAttr = os.Stdout, processAttributes()
	err := program.Start()
	if err == nil {
		_, err = guardProcess(program.Process)
	}
	if err == nil {
		_, err = os.Stdout.WriteString("watching\n")
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// A killed process runs no cleanup. The output of the program ends with both processes.
func TestProgramEndsWithItsWatcher(t *testing.T) {
	watcher := exec.Command(os.Args[0])
	watcher.Env = append(os.Environ(), watcherEnv+"=1")
	out, in, err := os.Pipe()
	must(t, err)
	watcher.Stdout = in
	must(t, watcher.Start())
	_ = in.Close()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "watching\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	must(t, watcher.Process.Kill())
	_ = watcher.Wait()
	if _, err := io.Copy(io.Discard, lines); err != nil { // returns when the program has ended
		t.Error(err)
	}
}

func TestReleasedProgramIsNotKilled(t *testing.T) {
	program := exec.Command("/bin/sh", "-c", "read -r line; exit 7")
	program.SysProcAttr = processAttributes()
	in, err := program.StdinPipe()
	must(t, err)
	must(t, program.Start())
	release, err := guardProcess(program.Process)
	must(t, err)
	release()
	_ = in.Close()
	_ = program.Wait()
	if code := program.ProcessState.Sys().(syscall.WaitStatus).ExitStatus(); code != 7 {
		t.Errorf("the program ended with %v, want its own exit code", program.ProcessState)
	}
}
