package leadership

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// contender is one manager process. The API server knows it by a user of its own, and it reaches the API server through a proxy of its
// own.
type contender struct {
	*controlplane.Process
	user  string
	proxy *faults.Proxy // nil if it needs none
}

// start starts a manager. Users are new for every test, so that the audit log tells them apart.
func start(t *testing.T, name string) *contender {
	t.Helper()
	account := t.Name() + "-" + name
	proxy := faults.New(t, here(t).ManagerConfig(account, "replicaset-controller"), faults.WithName(name))
	return &contender{Process: run(t, proxy.Config()), user: controlplane.ServiceAccount(account), proxy: proxy}
}

// startDirect starts a manager without a proxy: when the API server is away it finds nobody, instead of a proxy that cannot go on.
func startDirect(t *testing.T, name string) *contender {
	t.Helper()
	account := t.Name() + "-" + name
	return &contender{Process: run(t, here(t).ManagerConfig(account, "replicaset-controller")), user: controlplane.ServiceAccount(account)}
}

func run(t *testing.T, cfg *rest.Config) *controlplane.Process {
	t.Helper()
	return controlplane.StartProcess(t, append([]string{"--kubeconfig=" + here(t).KubeconfigFor(t, cfg)}, electionFlags...)...)
}

// pair starts two managers one after the other and returns them when the first leads and the second stands by with filled caches.
func pair(t *testing.T, start func(*testing.T, string) *contender) (leader, standby *contender) {
	t.Helper()
	forgetLease(t)
	leader = start(t, "a")
	leader.waitUntilLeading(t)
	standby = start(t, "b")
	standby.WaitForLog(t, "Waiting for the lease")
	return leader, standby
}

// forgetLease removes what an earlier test left: its holder is gone, and the next need not wait for it to expire.
func forgetLease(t *testing.T) {
	t.Helper()
	err := here(t).Client(t).CoordinationV1().Leases(leaseSpace).Delete(t.Context(), leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (c *contender) waitUntilLeading(t *testing.T) {
	t.Helper()
	controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
		if who := lastWriter(t); who != c.user {
			return fmt.Errorf("the lease was last written by %q, want %q", who, c.user)
		}
		return nil
	})
}

// lastWriter is the user of the last write to the Lease that left it held.
func lastWriter(t *testing.T) string {
	t.Helper()
	changes := leaseChanges(t)
	if len(changes) == 0 || changes[len(changes)-1].holder == "" {
		return ""
	}
	return changes[len(changes)-1].user
}

// editLease changes the Lease by hand, whoever else is writing it.
func editLease(t *testing.T, edit func(*coordinationv1.LeaseSpec)) {
	t.Helper()
	leases := here(t).Client(t).CoordinationV1().Leases(leaseSpace)
	controlplane.Eventually(t, 10*time.Second, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(&lease.Spec)
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}
