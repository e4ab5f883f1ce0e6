package fenced

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// elector returns the elector of a manager on lock, with the manager's durations.
func elector(t *testing.T, lock *lock, started, stopped func()) *leaderelection.LeaderElector {
	t.Helper()
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { started() }, OnStoppedLeading: stopped},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestManagerLeadsWhileTheLeaseIsOurs(t *testing.T) {
	for _, wins := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			lock := newLock("us", "default/operator")
			ctx, cancel := context.WithCancel(t.Context())
			leading, over := false, false
			e := elector(t, lock, func() { leading = true }, func() { over = true })
			go e.Run(ctx)
			<-lock.asked
			time.Sleep(time.Hour)
			if leading {
				t.Fatal("the manager leads before the lease is ours")
			}
			if wins {
				before := time.Now()
				lock.win()
				synctest.Wait()
				if waited := time.Since(before); !leading || waited > 0 {
					t.Fatalf("leading: %v, %v after the lease was ours, want it at once", leading, waited)
				}
				time.Sleep(time.Hour) // a frozen process renews late
				synctest.Wait()
				if over {
					t.Fatal("the manager stopped leading by itself")
				}
			}
			cancel()
			synctest.Wait()
			if leading != wins || !over {
				t.Errorf("leading: %v, stopped: %v; want it stopped", leading, over)
			}
		})
	}
}
