// Command controller-manager runs the ReplicaSet, Deployment, node, taint eviction, pod garbage collection, namespace and garbage collector loops of a
// Kubernetes control plane.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
)

// lastWords is how long a log that blocks may hold up the end of the process.
const lastWords = 100 * time.Millisecond

func main() {
	cmd := command.New(app.Controllers())
	cmd.SetContext(untilSignalled())
	// cli.Run prints usage for a bad command line, logs any later error, and flushes the log.
	os.Exit(cli.Run(cmd))
}

// untilSignalled returns a context that ends with the first SIGTERM, SIGINT or SIGHUP: running syncs finish, the lease is released, the process exits
// with 0. A second SIGTERM or SIGINT exits with 1 at once, and the lease has to expire. Further SIGHUPs are ignored, because a terminal that closes may
// send several; under nohup all are. SIGPIPE is ignored, so that the process survives whoever reads its log.
func untilSignalled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signal.Ignore(syscall.SIGPIPE)
	hangup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var s os.Signal
		select {
		case s = <-signals:
		case s = <-hangup:
		}
		cancel()
		go klog.InfoS("Stopping", "signal", s) // a log that nobody reads blocks
		s = <-signals
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			klog.InfoS("Second signal, leaving at once", "signal", s)
			klog.Flush()
		}()
		select {
		case <-logged:
		case <-time.After(lastWords):
		}
		os.Exit(1)
	}()
	return ctx
}
