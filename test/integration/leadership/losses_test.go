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
	"minikcm/test/faults"
)

// losses is how often the lease is taken away from one process.
const losses = 1000

// Losing the lease is not an exit, so whatever a lost term leaves behind would be there for ever.
func TestAThousandLossesLeakNothing(t *testing.T) {
	forgetLease(t)
	namespace := here(t).Namespace(t)
	proxy := faults.New(t, here(t).ConfigFor(t.Name(), "system:masters"))
	flags := append([]string{"--kubeconfig=" + here(t).KubeconfigFor(t, proxy.Config())}, electionFlags...)
	controlplane.StartManager(t, app.NewCommand(), flags...)
	holder := holderOf(t)
	client := here(t).Client(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // pools and buffers have their size after these
		lose(t, holder)
	}
	before := measure(proxy)
	for range losses {
		lose(t, holder)
	}
	after := measure(proxy)
	t.Logf("before %+v, after %d losses %+v", before, losses, after)
	if after.goroutines > before.goroutines+10 {
		t.Errorf("goroutines went from %d to %d", before.goroutines, after.goroutines)
	}
	if after.heap > before.heap+4<<20 {
		t.Errorf("heap went from %d to %d bytes", before.heap, after.heap)
	}
	if after.streams != before.streams {
		t.Errorf("watch streams went from %d to %d", before.streams, after.streams)
	}
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
	streams    int
}

func measure(proxy *faults.Proxy) usage {
	time.Sleep(time.Second) // timers that were stopped, connections that idle
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), m.HeapAlloc, proxy.OpenWatches(faults.Watches())}
}
