package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := flag.Bool("end", false, "end after the last scene instead of leaving everything running until Ctrl-C")
	manager := flag.String("manager", "", "path of the manager; without it bin/controller-manager")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The servers and the manager have separate process groups, so that Ctrl-C ends only this program.
	if err := demo(ctx, *manager, *end); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
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
	s.say("kill %d     # the manager; README.md says how to have another one take over", s.manager.Pid())
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.died:
			s.say("%v", err)
		}
	}
}
