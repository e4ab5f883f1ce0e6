package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"minikcm/test/controlplane"
)

// server is a program that runs for as long as the demo, or until its scene kills it.
type server struct {
	name     string
	cmd      *exec.Cmd
	log      string // file
	ended    chan struct{}
	expected atomic.Bool
}

var errExitedWell = errors.New("exit status 0")

// launch starts a program, that of its name in bin/ unless path says where it is, with its output in a file. If it ends before it is told to, the scene
// that is playing fails.
func (s *stage) launch(name, path string, args ...string) (_ *server, err error) {
	if path == "" {
		if path, err = controlplane.Binary(name); err != nil {
			return nil, err
		}
	}
	log, err := os.CreateTemp(s.dir, name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("make a log file: %w", err)
	}
	defer log.Close()
	v := &server{name: name, cmd: exec.Command(path, args...), log: log.Name(), ended: make(chan struct{})}
	v.cmd.Stdout, v.cmd.Stderr = log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		err := v.cmd.Wait()
		close(v.ended)
		if !v.expected.Load() {
			s.died <- fmt.Errorf("%s has ended (%v); the end of its log:\n%s", name, cmp.Or(err, errExitedWell), v.tail())
		}
	}()
	return v, nil
}

// tail is the end of the log, for whoever has to find out why.
func (v *server) tail() string {
	const most = 2000
	text, err := os.ReadFile(filepath.Clean(v.log))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// stop asks the program to end and insists after ten seconds.
func (v *server) stop() error {
	v.expected.Store(true)
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", v.name, err)
	}
	select {
	case <-v.ended:
		return nil
	case <-time.After(10 * time.Second):
		return v.kill()
	}
}

// kill ends the program without warning, as a power cut does.
func (v *server) kill() error {
	v.expected.Store(true)
	if err := v.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", v.name, err)
	}
	<-v.ended
	return nil
}

// follow hands every JSON line of the log to line until the program ends.
func (v *server) follow(line func(entry map[string]any)) {
	file, err := os.Open(v.log)
	if err != nil {
		return // the log goes with the demo
	}
	defer file.Close()
	reader, partial := bufio.NewReader(file), []byte{}
	for {
		chunk, err := reader.ReadBytes('\n')
		partial = append(partial, chunk...)
		if err == nil {
			var entry map[string]any
			if json.Unmarshal(partial, &entry) == nil {
				line(entry)
			}
			partial = partial[:0]
			continue
		}
		select {
		case <-v.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
