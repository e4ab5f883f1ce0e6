package fenced

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"minikcm/pkg/leadership"
)

// ErrLeaseLost is in the error of [Run] when another process took the lease, or it could not be renewed. Requests in
// flight were cancelled. A manager cannot be started again, so the process should exit and start again as a standby.
var ErrLeaseLost = errors.New("the lease was lost")

// Run builds a manager, passes it to setUp and starts it. Controllers and runnables that need leader election run
// while the lease of election is held. When ctx ends, running reconciles end first, then the lease is released, and
// Run returns nil. It returns an error with [ErrLeaseLost] as soon as the lease is lost and the manager has stopped.
//
// In election, Enabled may be false and Identity empty. In options, fields of leader election are replaced. Call Run
// once in a process: its metrics are in controller-runtime's registry, with the prefix minikcm_.
func Run(ctx context.Context, cfg *rest.Config, election leadership.Config, options manager.Options, setUp func(manager.Manager) error) (err error) {
	election.Enabled = true
	if election.Identity == "" {
		if election.Identity, err = leadership.NewIdentity(); err != nil {
			return err
		}
	}
	client, err := leadership.NewLeaseClient(cfg, election.RenewDeadline)
	if err != nil {
		return err
	}
	m := leadership.NewMetrics(prometheus.WrapRegistererWithPrefix("minikcm_", metrics.Registry))
	fence := leadership.NewFence(clock.RealClock{}, m)
	elector, err := leadership.New(election, leadership.Deps{Leases: client, Fence: fence, Metrics: m})
	if err != nil {
		return err
	}
	lock := newLock(election.Identity, election.Namespace+"/"+election.Name)
	mgr, err := build(cfg, fence, lock, election.ShutdownTimeout, options)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("leaderElection", func(*http.Request) error { return elector.Healthy() }); err != nil {
		return err
	}
	if err := setUp(mgr); err != nil {
		return err
	}
	leases, err := watch(cfg, election, elector)
	if err != nil {
		return err
	}
	return serve(klog.NewContext(ctx, mgr.GetLogger()), elector, leases, mgr, lock)
}

// build makes a manager whose writes pass the fence and whose election uses lock.
func build(cfg *rest.Config, fence *leadership.Fence, lock *lock, shutdown time.Duration, options manager.Options) (manager.Manager, error) {
	if options.Client.HTTPClient != nil || options.NewClient != nil || cfg.Transport != nil || cfg.Dial != nil {
		return nil, errors.New("a client, a transport or a dialer of one's own would pass beside the fence")
	}
	options.LeaderElection, options.LeaderElectionResourceLockInterface = true, lock
	options.LeaderElectionReleaseOnCancel = false // the elector releases the lease
	if options.GracefulShutdownTimeout == nil {
		patience := shutdown + time.Second // the elector gives up first and cancels requests
		if shutdown == 0 {
			patience = -1 // no limit
		}
		options.GracefulShutdownTimeout = &patience
	}
	if options.Cache.HTTPClient == nil {
		plain, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("build the caches' client: %w", err)
		}
		options.Cache.HTTPClient = plain // watches go on when a term ends
	}
	return manager.New(config(cfg, fence), options)
}

// watch passes every change of the Lease to the elector, so that it sees a release or a new holder at once.
func watch(cfg *rest.Config, election leadership.Config, elector *leadership.Elector) (cache.SharedInformer, error) {
	set, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cfg), "lease-watch"))
	if err != nil {
		return nil, fmt.Errorf("build the client of the Lease: %w", err)
	}
	one := cache.NewListWatchFromClient(set.CoordinationV1().RESTClient(), "leases", election.Namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, election.Name))
	leases := cache.NewSharedInformer(one, &coordinationv1.Lease{}, 0)
	_, err = leases.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { elector.Observe(obj.(*coordinationv1.Lease)) },
		UpdateFunc: func(_, obj any) { elector.Observe(obj.(*coordinationv1.Lease)) },
		DeleteFunc: func(any) { elector.Observe(nil) },
	})
	return leases, err
}

// serve runs the manager until ctx ends, the lease is lost, or the manager gives up.
func serve(ctx context.Context, elector *leadership.Elector, leases cache.SharedInformer, mgr manager.Manager, lock *lock) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	background := context.WithoutCancel(ctx)

	watching, blind := context.WithCancel(background)
	defer blind()
	go leases.RunWithContext(watching) // not waited for: after an error it may sleep for a minute

	working, stop := context.WithCancel(log.IntoContext(background, mgr.GetLogger()))
	defer stop()
	electing, withdraw := context.WithCancel(ctx)
	defer withdraw()
	stopped := make(chan struct{})
	var failure error // of the manager, once stopped is closed
	parts.Go(func() {
		defer close(stopped)
		failure = mgr.Start(working)
		withdraw() // without a manager there must be no leader
	})

	select {
	case <-lock.asked: // the manager has started
	case <-electing.Done():
	}
	err := elector.Run(electing, func(term context.Context, _ uint64) error {
		lock.win()
		var end error
		select {
		case <-term.Done():
			if electing.Err() == nil { // ctx has not ended
				end = ErrLeaseLost
			}
		case <-stopped:
		}
		stop()
		<-stopped
		return errors.Join(end, failure)
	})
	stop()
	<-stopped
	if err == nil { // a standby, which has no other error
		err = failure
	}
	return err
}
