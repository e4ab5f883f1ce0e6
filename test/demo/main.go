package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"minikcm/test/must"
)

func main() {
	end := flag.Bool("end", false, "end after the last scene instead of leaving everything running until Ctrl-C")
	manager := flag.String("manager", "", "path of the manager; without it bin/controller-manager")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The servers and the manager have separate process groups, so that Ctrl-C ends only this program.
	if err := must.Catch(func() { runDemo(ctx, *manager, *end) }); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func runDemo(ctx context.Context, manager string, end bool) {
	s := newStage(manager)
	defer s.tearDown()
	s.setUp(ctx)
	for _, scene := range scenes {
		s.printTitle(scene.title)
		scene.play(ctx, s)
		s.rest(ctx)
	}
	if end {
		return
	}
	s.printTitle("Your turn")
	s.printLine("export KUBECONFIG=%s", s.kubeconfig)
	s.printLine("kubectl -n %s get replicasets,pods -o wide     # Ctrl-C here ends everything", demoNamespace)
	s.printLine("kill %d     # ends the manager; see \"Test failover\" in README.md", s.manager.Pid())
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-s.died:
			s.printLine("%v", err)
		}
	}
}
