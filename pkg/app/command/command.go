// Package command is the command line of a controller manager with the global state of its process:
// logging, feature gates of libraries and metrics of libraries. A program with other work uses package app.
package command

import (
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo" // metrics of informers
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version" // kubernetes_build_info
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/klog/v2"

	"minikcm/pkg/app"
	"minikcm/pkg/controller"
)

const description = `controller-manager runs eight controllers of kube-controller-manager: Deployments,
ReplicaSets, EndpointSlices, node health, taint eviction, pod garbage collection,
namespaces and the garbage collector.

Several replicas may run: one leads, the others stand by with filled caches. Flags and
most defaults are those of kube-controller-manager v1.37, as far as they apply.`

// New returns the controller-manager command for these controllers, as a rule [app.Controllers] and some of
// your own. The command runs until its context ends, stops in order and returns nil.
//
// Several commands may run in one process. The first command sets the global state: logging, and the gates
// of client-go and of metrics. Call New for all commands before the first one runs, and start no
// two at the same moment, because both read this state.
func New(controllers []controller.Registration) *cobra.Command {
	o := app.NewOptions(controllers)
	cmd := &cobra.Command{
		Use:  app.Name,
		Long: description,
		Args: noArguments,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return o.SetGates() // before gates are read
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
	width, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 without a terminal, so lines are not wrapped
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

// run runs the command with parsed flags and gates.
func run(cmd *cobra.Command, o *app.Options) error {
	if err := utilerrors.NewAggregate(o.Validate()); err != nil {
		return err
	}
	if err := setUpProcess(o); err != nil {
		return err
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden { // hidden flags have no effect here
			klog.V(1).Infof("FLAG: --%s=%q", f.Name, f.Value)
		}
	})
	cfg, err := o.Complete()
	if err != nil {
		return err
	}
	cfg.OwnProcess = true
	ctx := cmd.Context()
	log := klog.FromContext(ctx)
	o.LogStart(log, cfg)
	log.Info("Go settings", "GOGC", os.Getenv("GOGC"), "GOMEMLIMIT", os.Getenv("GOMEMLIMIT"),
		"GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK", os.Getenv("GOTRACEBACK"))
	return app.Run(ctx, cfg)
}

// process is done when the global state of the process is set.
var process sync.Once

// setUpProcess sets the global state: logging, feature gates of libraries and metrics of libraries.
func setUpProcess(o *app.Options) (err error) {
	process.Do(func() {
		if err = logsapi.ValidateAndApply(o.Logs, o.Gate()); err != nil {
			err = fmt.Errorf("logging flags: %w", err)
			return
		}
		// Users of this program cannot act on warnings about deprecated APIs. The controllers use the current version
		// of each API.
		rest.SetDefaultWarningHandler(rest.NoWarnings{})
		o.UseGatesForLibraries()
		applyMetrics(o.Metrics)
	})
	return err
}

// applyMetrics applies the given metrics flags. The library's own function logs an error at every start, because the
// function reads an empty file name as an invalid file.
func applyMetrics(o *metrics.Options) {
	if o.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.DisabledMetrics)
	switch {
	case len(o.AllowListMapping) > 0:
		metrics.SetLabelAllowList(o.AllowListMapping)
	case o.AllowListMappingManifest != "":
		metrics.SetLabelAllowListFromManifest(o.AllowListMappingManifest)
	}
	// The default Go collector replaces that of the library, which has all 225 lines of runtime metrics.
	registry := legacyregistry.Registerer()
	if registry.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll))) {
		registry.MustRegister(collectors.NewGoCollector())
	}
}
