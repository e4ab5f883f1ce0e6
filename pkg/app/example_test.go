package app_test

import (
	"context"
	"fmt"

	"minikcm/pkg/app"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/replicaset"
)

// Two controllers in another program, for example beside the API server of a test, as in README.md.
func Example() {
	namespaces := namespace.DefaultConfig()
	namespaces.Grace = 0 // one API server, no slow webhooks
	o := app.NewOptions([]controller.Registration{
		replicaset.Registration(replicaset.DefaultConfig()), namespace.Registration(namespaces),
	})
	o.Kubeconfig = "kubeconfig"
	o.Election.Enabled = false
	o.Serving.Port = 0
	if errs := o.Validate(); len(errs) > 0 {
		fmt.Println(errs)
		return
	}
	cfg, err := o.Complete()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := app.Run(ctx, cfg); err != nil { // until ctx ends
		fmt.Println(err)
	}
}
