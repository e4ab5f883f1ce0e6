// Command controller-manager runs a part of the controllers of kube-controller-manager on one set of caches.
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

// flushTimeout limits the wait for a blocked log at the exit of the process.
const flushTimeout = 100 * time.Millisecond

func main() {
	cmd := command.New(app.Controllers())
	cmd.SetContext(untilSignalled())
	// cli.Run prints usage for a bad command line, logs any later error, and flushes the log.
	os.Exit(cli.Run(cmd))
}

// untilSignalled returns a context that ends with the first SIGTERM, SIGINT or SIGHUP. Running syncs then
// finish, the lease is released, and the process exits with 0. If syncs and their requests do not end within the
// shutdown timeout, the process exits with 1, and the lease has to expire. A second SIGTERM or SIGINT exits with
// 1 at once, and the lease has to expire. Further SIGHUPs are ignored, because a closing terminal may send
// several. Under nohup all SIGHUPs are ignored. SIGPIPE is ignored, so that the process survives the reader of
// its log.
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
		go func(s os.Signal) { klog.InfoS("Stopping", "signal", s) }(s) // blocks without a reader
		s = <-signals
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			klog.InfoS("Received a second signal, exiting at once", "signal", s)
			klog.Flush()
		}()
		select {
		case <-logged:
		case <-time.After(flushTimeout):
		}
		os.Exit(1)
	}()
	return ctx
}
