// Own-controller is controller-manager with one more controller, in package foo. Flags, feature gates, lease, metrics
// and caches are those of controller-manager.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/cli"

	"minikcm/examples/own-controller/foo"
	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
)

func main() {
	cmd := command.New(append(app.Controllers(), foo.Registration(foo.DefaultConfig())))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cmd.SetContext(ctx)
	os.Exit(cli.Run(cmd))
}
