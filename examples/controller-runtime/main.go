// Operator is an example on controller-runtime: it counts in every ConfigMap with the label example.com/beat, several
// times a second. With --election=controller-runtime it uses that election instead of package fenced.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"minikcm/examples/controller-runtime/fenced"
	"minikcm/pkg/leadership"
)

// label marks the ConfigMaps to count in, with any value.
const label = "example.com/beat"

func main() {
	election := leadership.Config{ShutdownTimeout: 10 * time.Second}
	flag.DurationVar(&election.LeaseDuration, "lease-duration", 15*time.Second, "Time after which another replica may take a Lease that is not renewed.")
	flag.DurationVar(&election.RenewDeadline, "renew-deadline", 10*time.Second, "Time after which a leader that cannot renew the Lease stops.")
	flag.DurationVar(&election.RetryPeriod, "retry-period", 2*time.Second, "Time between two renewals.")
	flag.StringVar(&election.Namespace, "namespace", "default", "Namespace of the Lease, and of the ConfigMaps to count in.")
	flag.StringVar(&election.Name, "lease", "operator", "Name of the Lease.")
	every := flag.Duration("every", 100*time.Millisecond, "Time between two beats of a ConfigMap.")
	elected := flag.String("election", "minikcm", "Election to use: 'minikcm' or 'controller-runtime'.")
	metrics := flag.String("metrics-bind-address", "0", "Where to serve metrics, such as :8080; 0: nowhere.")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *elected, election, *metrics, *every); err != nil {
		klog.ErrorS(err, "Operator ended")
		klog.Flush()
		os.Exit(1)
	}
}

func run(ctx context.Context, elected string, election leadership.Config, metrics string, every time.Duration) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	marked, err := labels.Parse(label)
	if err != nil {
		return err
	}
	options := manager.Options{
		Controller: config.Controller{EnableWarmup: new(true)},
		Metrics:    metricsserver.Options{BindAddress: metrics},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{election.Namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: marked}},
		},
	}
	setUp := func(mgr manager.Manager) error { return (&beats{mgr.GetClient(), every}).setUp(mgr) }
	switch elected {
	case "minikcm":
		return fenced.Run(ctx, cfg, election, options, setUp)
	case "controller-runtime":
		return usual(ctx, cfg, election, options, setUp)
	}
	return fmt.Errorf("--election=%s: must be minikcm or controller-runtime", elected)
}

// usual runs the manager with controller-runtime's own election.
func usual(ctx context.Context, cfg *rest.Config, election leadership.Config, options manager.Options, setUp func(manager.Manager) error) error {
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaderElectionNamespace, options.LeaderElectionID = election.Namespace, election.Name
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &election.LeaseDuration, &election.RenewDeadline, &election.RetryPeriod
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return err
	}
	if err := setUp(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// beats counts in ConfigMaps.
type beats struct {
	client.Client
	every time.Duration
}

func (b *beats) setUp(mgr manager.Manager) error {
	// Its own writes need no reconcile.
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).Complete(b)
}

// Reconcile implements reconcile.Reconciler.
func (b *beats) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var found corev1.ConfigMap
	if err := b.Get(ctx, req.NamespacedName, &found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	n, _ := strconv.Atoi(found.Data["beats"]) // no number: count from 0
	next := found.DeepCopy()
	next.Data = map[string]string{"beats": strconv.Itoa(n + 1)}
	return ctrl.Result{RequeueAfter: b.every}, b.Patch(ctx, next, client.MergeFrom(&found))
}
