package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// childEnv marks the process that does the work.
const childEnv = "MINIKCM_DEMO_CHILD"

func main() {
	end := flag.Bool("end", false, "end after the last scene instead of leaving everything running until Ctrl-C")
	manager := flag.String("manager", "", "path of the manager; without it bin/controller-manager")
	flag.Parse()
	if err := run(*manager, *end); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run starts the demo in a process group of its own and passes on one Ctrl-C. A terminal sends that to the whole foreground group: the
// servers would end at the same moment as the demo, and the manager could not release its lease.
func run(manager string, end bool) error {
	if os.Getenv(childEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return demo(ctx, manager, end)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	child := exec.Command(self, os.Args[1:]...)
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the demo: %w", err)
	}
	go func() {
		<-interrupted
		fmt.Println()
		_ = child.Process.Signal(syscall.SIGTERM) // if it has ended already there is nothing to stop
	}()
	if err := child.Wait(); err != nil {
		return fmt.Errorf("the demo ended: %w", err)
	}
	return nil
}

func demo(ctx context.Context, manager string, end bool) error {
	s, err := raise(ctx, manager)
	if err != nil {
		return err
	}
	defer s.lower()
	for _, scene := range scenes {
		s.title(scene.title)
		if err := scene.play(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", scene.title, err)
		}
		if s.pause(ctx); ctx.Err() != nil {
			return nil
		}
	}
	if end {
		select {
		case err := <-s.died: // during the last pause
			return err
		default:
			return nil
		}
	}
	s.title("Your turn")
	s.say("export KUBECONFIG=%s", s.kubeconfig)
	s.say("kubectl get replicasets,pods -o wide     # Ctrl-C here ends everything")
	s.say("kill %d     # the manager; README.md says how to have another one take over", s.manager.cmd.Process.Pid)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.died:
			s.say("%v", err)
		}
	}
}
