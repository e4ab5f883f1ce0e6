package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

// Two replicas of the operator, as processes, compete for a Lease on a real API server; its audit log shows their
// writes. With COMPARE=1 the same runs with controller-runtime's election, without requirements.

var (
	cluster *controlplane.Cluster
	folder  string // for the program
)

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "operator-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := controlplane.Run(m, controlplane.Options{AuditPolicy: controlplane.LeaseAuditPolicy}, func(c *controlplane.Cluster) { cluster = c })
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	patience = 2 * time.Minute
	// noticed bounds how long a leader may write after another user took its lease. An event of a watch takes
	// milliseconds, more on a busy machine.
	noticed = 10 * time.Second
)

func TestSIGTERMHandsOver(t *testing.T) {
	everyElection(t, func(t *testing.T, elected string) {
		leader, standby := pair(t, elected)
		told := time.Now()
		controlplane.Must(t, leader.Signal(syscall.SIGTERM))
		standby.writes(t, told)
		code, err := leader.Wait(patience)
		if err != nil || code != 0 {
			t.Errorf("exit code %d (%v), want 0", code, err)
		}
		last, first := leader.lastWrite(t), standby.firstWrite(t, told)
		t.Logf("%s: last write %v after SIGTERM, first write of the other replica %v after SIGTERM and %v after the last",
			elected, since(told, last), since(told, first), since(last, first))
		judge(t, elected, leader, standby)
	})
}

func TestFrozenLeaderDoesNotWriteWhenItGoesOn(t *testing.T) {
	everyElection(t, func(t *testing.T, elected string) {
		leader, standby := pair(t, elected)
		stopped := time.Now()
		controlplane.Must(t, leader.Signal(syscall.SIGSTOP))
		standby.writes(t, stopped) // the lease has expired
		thawed := time.Now()
		controlplane.Must(t, leader.Signal(syscall.SIGCONT))
		if code, err := leader.Wait(patience); err != nil || code != 1 {
			t.Errorf("exit code %d (%v), want 1", code, err)
		}
		standby.writes(t, time.Now())
		first := standby.firstWrite(t, stopped)
		t.Logf("%s: frozen for %v; first write of the other replica after %v; %d writes by the first one when it went on", elected,
			since(stopped, thawed), since(stopped, first), len(leader.allWrites(t, thawed)))
		judge(t, elected, leader, standby)
	})
}

func TestLeaderOfAStolenLeaseStops(t *testing.T) {
	everyElection(t, func(t *testing.T, elected string) {
		leader, standby := pair(t, elected)
		stolen := leader.steal(t)
		if code, err := leader.Wait(patience); err != nil || code != 1 {
			t.Errorf("exit code %d (%v), want 1", code, err)
		}
		t.Logf("%s: lease stolen; last write of the leader %v after that, %d in all", elected, since(stolen, leader.lastWrite(t)), len(leader.allWrites(t, stolen)))
		standby.writes(t, time.Now())
		judge(t, elected, leader, standby)
	})
}

func everyElection(t *testing.T, test func(*testing.T, string)) {
	t.Parallel()
	elections := []string{"minikcm"}
	if os.Getenv("COMPARE") != "" {
		elections = append(elections, "controller-runtime")
	}
	for _, elected := range elections {
		t.Run(elected, func(t *testing.T) {
			t.Parallel()
			test(t, elected)
		})
	}
}

type replica struct {
	*controlplane.Process
	user      string
	namespace string
}

// pair starts a leader that writes and a standby, in a namespace with ten ConfigMaps to count in.
func pair(t *testing.T, elected string) (leader, standby *replica) {
	t.Helper()
	namespace := cluster.Namespace(t)
	for i := range 10 {
		beat := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("beat-", i), Labels: map[string]string{label: namespace}}}
		cluster.Create(t, beat)
	}
	leader = start(t, elected, namespace, "first")
	leader.writes(t, time.Time{})
	standby = start(t, elected, namespace, "second")
	standby.WaitForLog(t, map[string]string{"minikcm": "Standing by for another holder", "controller-runtime": "Attempting to acquire leader lease"}[elected])
	return leader, standby
}

func start(t *testing.T, elected, namespace, name string) *replica {
	t.Helper()
	user := namespace + "-" + name
	path, err := program()
	controlplane.Must(t, err)
	p := controlplane.StartProgram(t, path, "--kubeconfig="+cluster.Kubeconfig(t, user, "system:masters"),
		"--election="+elected, "--namespace="+namespace, "--lease-duration=6s", "--renew-deadline=4s", "--retry-period=1s")
	return &replica{p, user, namespace}
}

// program builds the operator in the folder of TestMain.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "operator")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func (r *replica) steal(t *testing.T) time.Time {
	t.Helper()
	thief := "another-holder"
	controlplane.Edit(t, cluster.Client(t).CoordinationV1().Leases(r.namespace), "operator", func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = &thief })
	return time.Now()
}

func (r *replica) allWrites(t *testing.T, after time.Time) controlplane.AuditEvents {
	t.Helper()
	return cluster.AuditLogSince(t, after, controlplane.Received, controlplane.Writes, controlplane.ByUser(r.user), controlplane.ByResource("configmaps"))
}

// writes waits until the replica has written after a moment.
func (r *replica) writes(t *testing.T, after time.Time) {
	t.Helper()
	controlplane.Eventually(t, patience, func(context.Context) error {
		if len(r.allWrites(t, after)) == 0 {
			return fmt.Errorf("%s has written nothing since %v", r.user, after)
		}
		return nil
	})
}

func (r *replica) firstWrite(t *testing.T, after time.Time) time.Time {
	t.Helper()
	return r.allWrites(t, after)[0].StageTimestamp.Time
}

func (r *replica) lastWrite(t *testing.T) time.Time {
	t.Helper()
	all := r.allWrites(t, time.Time{})
	return all[len(all)-1].StageTimestamp.Time
}

func since(from, to time.Time) time.Duration { return to.Sub(from).Round(time.Millisecond) }

func judge(t *testing.T, elected string, replicas ...*replica) {
	t.Helper()
	var users []string
	for _, r := range replicas {
		users = append(users, r.user)
	}
	lease := types.NamespacedName{Namespace: replicas[0].namespace, Name: "operator"}
	breaches, err := controlplane.JudgeLease(cluster.AuditLog(t, controlplane.Writes), lease, users...)
	controlplane.Must(t, err)
	breaches = slices.DeleteFunc(breaches, func(b controlplane.LeaseBreach) bool {
		return b.Last.User != "" && !slices.Contains(users, b.Last.User) && b.Late() < noticed
	})
	if t.Logf("%s: %d writes without the lease", elected, len(breaches)); elected == "minikcm" && len(breaches) > 0 {
		t.Errorf("writes without the lease: %v", breaches)
	}
}
