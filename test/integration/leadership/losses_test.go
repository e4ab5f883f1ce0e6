package leadership

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// losses is how often the lease is taken away from one process.
const losses = 100

// Losing the lease is not an exit, so whatever a lost term leaves behind would be there for ever.
func TestLossesLeakNothing(t *testing.T) {
	long(t)
	forgetLease(t)
	namespace := here(t).Namespace(t)
	port := controlplane.FreePort(t)
	manager := direct(t, "a", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--authorization-always-allow-paths=/metrics,/debug/pprof/*", "-v=0")
	holder := holderOf(t)
	client := here(t).Client(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // pools and buffers have their size after these
		lose(t, holder)
	}
	before := measure(t, port)
	for range losses {
		lose(t, holder)
	}
	after := measure(t, port)
	t.Logf("before %+v, after %d losses %+v", before, losses, after)
	// A lease that is taken again before the end of the term before was noticed is one loss, not two.
	if ended := after.terms - before.terms; ended < 0.99*losses {
		t.Errorf("%v terms were lost, want %d", ended, losses)
	}
	if after.goroutines > before.goroutines+10 {
		t.Errorf("goroutines went from %v to %v", before.goroutines, after.goroutines)
	}
	// The connections that the end of a term aborts are held by the timers of HTTP/2 for half a minute longer.
	controlplane.Eventually(t, 3*time.Minute, func(context.Context) error {
		if after = measure(t, port); after.heap > before.heap+4<<20 {
			return fmt.Errorf("heap went from %v to %v bytes", before.heap, after.heap)
		}
		return nil
	})
	t.Logf("when nothing held on to the last of them: %+v", after)
	if got, want := openStreams(t, manager.user), 4; got != want { // ReplicaSets, pods, namespaces and Leases
		t.Errorf("%d watch streams are open, want %d", got, want)
	}
	judge(t, manager)
}

// lose gives the Lease to somebody else, and back once the manager has noticed.
func lose(t *testing.T, holder string) {
	t.Helper()
	thief := "somebody-else"
	editLease(t, func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = &thief })
	giveAway(t)
	if got := holderOf(t); got != holder {
		t.Fatalf("the lease went to %q, want %q", got, holder)
	}
}

// holderOf waits until the Lease is held and returns by whom.
func holderOf(t *testing.T) string {
	t.Helper()
	var holder string
	controlplane.Eventually(t, 5*leaseDuration, func(ctx context.Context) error {
		lease, err := lease(ctx, t)
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
	goroutines float64
	heap       float64 // bytes, garbage collected
	terms      float64 // that ended because the lease was lost
}

func measure(t *testing.T, port int) usage {
	t.Helper()
	controlplane.Consistently(t, time.Second, standing) // timers that were stopped, connections that idle
	get(t, port, "/debug/pprof/heap?gc=1")
	var u usage
	for line := range strings.Lines(get(t, port, "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			u.goroutines = number
		case "go_memstats_heap_alloc_bytes":
			u.heap = number
		case `leadership_terms_ended_total{reason="lost"}`:
			u.terms = number
		}
	}
	if u.goroutines == 0 || u.heap == 0 {
		t.Fatalf("no numbers in /metrics: %+v", u)
	}
	return u
}

// get reads a page of a manager.
func get(t *testing.T, port int, page string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body, err := controlplane.Page(ctx, here(t).Config(), port, page)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// openStreams counts the watches of a user.
func openStreams(t *testing.T, user string) int {
	t.Helper()
	watches := here(t).AuditLogSince(t, here(t).since, controlplane.ByUser(user), controlplane.ByVerb("watch"))
	return len(watches.Where(controlplane.Received)) - len(watches.Where(controlplane.Completed))
}
