package leadership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

type contender struct {
	*controlplane.Process
	user  string
	proxy *faults.Proxy
}

func start(t *testing.T, name string, more ...string) *contender {
	t.Helper()
	proxy := faults.New(t, setConfig(t, name), faults.WithName(name))
	c := startAt(t, name, proxy.Config(), more...)
	c.proxy = proxy
	return c
}

func startDirect(t *testing.T, name string, more ...string) *contender {
	t.Helper()
	return startAt(t, name, setConfig(t, name), more...)
}

// setConfig returns the config of a manager with the permissions of the ReplicaSet controller.
func setConfig(t *testing.T, name string) *rest.Config {
	t.Helper()
	return here(t).ManagerConfig(name, "replicaset-controller")
}

func startAt(t *testing.T, name string, cfg *rest.Config, more ...string) *contender {
	t.Helper()
	args := slices.Concat([]string{"--kubeconfig=" + here(t).KubeconfigFor(t, cfg), "--secure-port=0"}, electionFlags, more)
	return &contender{Process: controlplane.StartProcess(t, args...), user: controlplane.ServiceAccount(name)}
}

func pair(t *testing.T, start func(*testing.T, string, ...string) *contender, more ...string) (leader, standby *contender) {
	t.Helper()
	leader = start(t, "a", more...)
	leader.waitUntilLeading(t)
	standby = start(t, "b", more...)
	standby.WaitForLog(t, "Waiting for the lease")
	return leader, standby
}

func (c *contender) waitUntilLeading(t *testing.T) {
	t.Helper()
	controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
		if last := controlplane.LastLeaseChange(leaseChanges(t), time.Now()); last.Holder == "" || last.User != c.user {
			return fmt.Errorf("last change of the lease %+v, want one by %q", last, c.user)
		}
		return nil
	})
}

// running returns an error if the manager has ended: losing the lease is not an exit.
func (c *contender) running() error {
	select {
	case <-c.Done():
		return fmt.Errorf("%s ended with %d, it should stand by", c.user, c.ExitCode())
	default:
		return nil
	}
}

// relieve ends the leader with SIGTERM and returns the next leader.
func relieve(t *testing.T, leader *contender, others ...*contender) (next *contender) {
	t.Helper()
	signalled := time.Now()
	controlplane.Must(t, leader.Signal(syscall.SIGTERM))
	next = awaitCreate(t, signalled, leaseDuration, others...)
	next.WaitForLog(t, `cause="released"`)
	return next
}

// awaitCreate waits until a manager has created a pod after a moment, and returns the manager.
func awaitCreate(t *testing.T, after time.Time, timeout time.Duration, managers ...*contender) (creator *contender) {
	t.Helper()
	controlplane.Eventually(t, timeout, func(context.Context) error {
		for _, c := range managers {
			if slices.ContainsFunc(podCreates(t, c.user), func(w auditv1.Event) bool { return w.StageTimestamp.After(after) }) {
				creator = c
				return nil
			}
		}
		return errors.New("no pod was created since " + after.Format(time.StampMilli) + " by the managers that should")
	})
	return creator
}
