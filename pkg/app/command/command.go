// Package command is the command line of a controller manager, with all that concerns its whole process: flags, logging, the gates that libraries
// ask, and the metrics that libraries keep. A program that has other work to do uses package app alone, which touches none of that.
package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"minikcm/pkg/app"
	"minikcm/pkg/controller"
)

const description = `controller-manager runs control loops of a Kubernetes control plane: it keeps the pods of
ReplicaSets in number, watches the health of nodes, evicts pods from nodes that are
tainted, collects pods nobody else will delete, and empties namespaces that are deleted.
If they are named, it also rolls out Deployments, and deletes objects whose owners are
gone: --controllers=*,deployment,garbagecollector.

Several replicas may run; one of them works, the others stand by with filled caches.
Flags are those of kube-controller-manager as far as they apply.`

// New returns the controller-manager command for these controllers, as a rule [app.Controllers] and some of your own. It runs until its
// context ends, then stops in order and returns nil.
//
// Several commands may run in one process. What a process has only once (logging, the gates of client-go and of metrics) is
// set by the first.
func New(controllers []controller.Registration) *cobra.Command {
	o := app.NewOptions(controllers)
	cmd := &cobra.Command{
		Use:  app.Name,
		Long: description,
		Args: noArguments,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return o.SetGates() // before anything asks a gate
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if done, err := o.PrintVersion(cmd.OutOrStdout()); done || err != nil {
				return err
			}
			return run(cmd, o)
		},
	}
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	fss := o.Flags()
	for _, name := range fss.Order {
		cmd.Flags().AddFlagSet(fss.FlagSets[name])
	}
	width, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 if it is no terminal: lines are not wrapped
	cliflag.SetUsageAndHelpFunc(cmd, fss, width)
	return cmd
}

func noArguments(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if arg != "" {
			return fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args)
		}
	}
	return nil
}

// run is what the command does once flags are parsed and gates are set.
func run(cmd *cobra.Command, o *app.Options) error {
	if err := utilerrors.NewAggregate(o.Validate()); err != nil {
		return err
	}
	if err := setUpProcess(o); err != nil {
		return err
	}
	cliflag.PrintFlags(cmd.Flags())
	cfg, err := o.Complete()
	if err != nil {
		return err
	}
	cfg.OwnProcess = true
	ctx := cmd.Context()
	log := klog.FromContext(ctx)
	var names []string
	for _, c := range cfg.Controllers {
		names = append(names, c.Name)
	}
	log.Info("Starting", "version", version.Get().GitVersion, "controllers", names)
	log.Info("Go settings", "GOGC", os.Getenv("GOGC"), "GOMEMLIMIT", os.Getenv("GOMEMLIMIT"),
		"GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK", os.Getenv("GOTRACEBACK"))
	o.Warn(log)
	return app.Run(ctx, cfg)
}
