package leadership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

type contender struct {
	*controlplane.Process
	user  string
	proxy *faults.Proxy
}

func start(t *testing.T, name string) *contender {
	t.Helper()
	return launch(t, name, controlplane.ManagerBinary(t))
}

func launch(t *testing.T, name string, command ...string) *contender {
	t.Helper()
	account := here(t).name + "-" + name
	proxy := faults.New(t, here(t).ManagerConfig(account, "replicaset-controller"), faults.WithName(name))
	return &contender{Process: run(t, proxy.Config(), command, "--secure-port=0"), user: controlplane.ServiceAccount(account), proxy: proxy}
}

func startDirect(t *testing.T, name string) *contender {
	t.Helper()
	return direct(t, name, "--secure-port=0")
}

func startServing(t *testing.T, name string) *contender {
	t.Helper()
	asks := here(t).KubeconfigFor(t, here(t).ManagerConfig(here(t).name+"-"+name, "replicaset-controller"))
	return direct(t, name, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", controlplane.FreePort(t)),
		"--authentication-kubeconfig="+asks, "--authorization-kubeconfig="+asks)
}

func direct(t *testing.T, name string, more ...string) *contender {
	t.Helper()
	account := here(t).name + "-" + name
	cfg := here(t).ManagerConfig(account, "replicaset-controller")
	return &contender{Process: run(t, cfg, []string{controlplane.ManagerBinary(t)}, more...), user: controlplane.ServiceAccount(account)}
}

func run(t *testing.T, cfg *rest.Config, command []string, more ...string) *controlplane.Process {
	t.Helper()
	args := slices.Concat(command[1:], []string{"--kubeconfig=" + here(t).KubeconfigFor(t, cfg)}, electionFlags, more)
	return controlplane.StartProgram(t, command[0], args...)
}

func pair(t *testing.T, start func(*testing.T, string) *contender) (leader, standby *contender) {
	t.Helper()
	forgetLease(t)
	leader = start(t, "a")
	leader.waitUntilLeading(t)
	standby = start(t, "b")
	standby.waitUntilWarm(t)
	return leader, standby
}

func (c *contender) waitUntilWarm(t *testing.T) {
	t.Helper()
	c.WaitForLog(t, "Waiting for the lease")
}

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

// runs fails the test if the manager has ended: losing the lease is not an exit.
func (c *contender) runs(t *testing.T) {
	t.Helper()
	if err := c.running(); err != nil {
		t.Error(err)
	}
}

func (c *contender) running() error {
	select {
	case <-c.Done():
		return fmt.Errorf("%s ended with %d, it should stand by", c.user, c.ExitCode())
	default:
		return nil
	}
}

// signal sends a signal that must arrive.
func (c *contender) signal(t *testing.T, s interface {
	String() string
	Signal()
}) {
	t.Helper()
	if err := c.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (c *contender) endsWell(t *testing.T) {
	t.Helper()
	if code, err := c.Wait(time.Minute); err != nil || code != 0 {
		t.Errorf("%s ended with %d, %v; want 0", c.user, code, err)
	}
}

func lastWriter(t *testing.T) string {
	t.Helper()
	changes := leaseChanges(t)
	if len(changes) == 0 || changes[len(changes)-1].Holder == "" {
		return ""
	}
	return changes[len(changes)-1].User
}

// lease reads the Lease.
func lease(ctx context.Context, t *testing.T) (*coordinationv1.Lease, error) {
	t.Helper()
	return here(t).Client(t).CoordinationV1().Leases(leaseSpace).Get(ctx, leaseName, metav1.GetOptions{})
}

func createdBy(t *testing.T, c *contender, after time.Time, timeout time.Duration) time.Duration {
	t.Helper()
	_, took := createdByOne(t, after, timeout, c)
	return took
}

func relieves(t *testing.T, leader *contender, others ...*contender) (next *contender, took time.Duration) {
	t.Helper()
	signalled := time.Now()
	leader.signal(t, syscall.SIGTERM)
	next, took = createdByOne(t, signalled, leaseDuration, others...)
	next.WaitForLog(t, `cause="released"`)
	t.Logf("first pod of %s %v after SIGTERM", next.user, took)
	return next, took
}

func createdByOne(t *testing.T, after time.Time, timeout time.Duration, some ...*contender) (who *contender, took time.Duration) {
	t.Helper()
	controlplane.Eventually(t, timeout, func(context.Context) error {
		for _, c := range some {
			for _, w := range podCreates(t, c.user) {
				if at := w.StageTimestamp.Time; at.After(after) {
					who, took = c, at.Sub(after)
					return nil
				}
			}
		}
		return errors.New("no pod was created since " + after.Format(time.StampMilli) + " by those that should")
	})
	return who, took
}
