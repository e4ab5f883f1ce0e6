package leadership

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/app"
	"minikcm/test/controlplane"
)

// losses is how often the lease is taken away from one process.
const losses = 1000

// Losing the lease is not an exit, so whatever a lost term leaves behind would be there for ever.
func TestAThousandLossesLeakNothing(t *testing.T) {
	forgetLease(t)
	namespace := here(t).Namespace(t)
	embed(t, here(t).ManagerKubeconfig(t, t.Name(), "replicaset-controller")) // through no proxy: that remembers every request
	holder := holderOf(t)
	client := here(t).Client(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // pools and buffers have their size after these
		lose(t, holder)
	}
	before := measure()
	for range losses {
		lose(t, holder)
	}
	after := measure()
	t.Logf("before %+v, after %d losses %+v", before, losses, after)
	if after.goroutines > before.goroutines+10 {
		t.Errorf("goroutines went from %d to %d", before.goroutines, after.goroutines)
	}
	// client-go's event correlator remembers the last 4,096 things events were about, one of which is made at the end of each term.
	if after.heap > before.heap+4<<20 {
		t.Errorf("heap went from %d to %d bytes", before.heap, after.heap)
	}
	if got, want := openStreams(t, controlplane.ServiceAccount(t.Name())), 4; got != want { // ReplicaSets, pods, namespaces and Leases
		t.Errorf("%d watch streams are open, want %d", got, want)
	}
}

// embed runs a manager in this process, as a program would that embeds one: the command sets logging and gates for the whole process,
// which a test that is at work already cannot have.
func embed(t *testing.T, kubeconfig string) {
	t.Helper()
	o := app.NewOptions()
	o.Client.Kubeconfig = kubeconfig
	o.Generic.Controllers = []string{"replicaset"}
	o.Serving.SecurePort = 0
	o.LeaderElection.LeaseDuration, o.LeaderElection.RenewDeadline, o.LeaderElection.RetryPeriod = leaseDuration, 4*time.Second, time.Second
	if errs := o.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	cfg, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// lose gives the Lease to somebody else, and back once the manager has noticed.
func lose(t *testing.T, holder string) {
	t.Helper()
	thief := "somebody-else"
	editLease(t, func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = &thief })
	free := ""
	editLease(t, func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = &free })
	if got := holderOf(t); got != holder {
		t.Fatalf("the lease went to %q, want %q", got, holder)
	}
}

// holderOf waits until the Lease is held and returns by whom.
func holderOf(t *testing.T) string {
	t.Helper()
	var holder string
	controlplane.Eventually(t, 2*leaseDuration, func(ctx context.Context) error {
		lease, err := here(t).Client(t).CoordinationV1().Leases(leaseSpace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("lease %+v", lease.Spec)
		}
		holder = *lease.Spec.HolderIdentity
		return nil
	})
	return holder
}

type usage struct {
	goroutines int
	heap       uint64 // bytes
}

func measure() usage {
	time.Sleep(time.Second) // timers that were stopped, connections that idle
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), m.HeapAlloc}
}

// openStreams counts the watches of a user. The audit log is in our own memory once it was read, so it is read after that was measured.
func openStreams(t *testing.T, user string) int {
	t.Helper()
	watches := here(t).AuditLog(t).Where(controlplane.ByUser(user), controlplane.ByVerb("watch"))
	return len(watches.Where(controlplane.Received)) - len(watches.Where(controlplane.Completed))
}
