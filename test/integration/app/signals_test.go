package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func TestSignalsBeforeThereIsATerm(t *testing.T) {
	t.Parallel()
	// Under nohup these tests and their children would ignore SIGHUP.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })

	type wait func(*testing.T, *controlplane.Process) // until the signal is due
	away := func(t *testing.T, proxy *faults.Proxy) wait {
		controlplane.Must(t, proxy.Outage(faults.Refused))
		return func(t *testing.T, p *controlplane.Process) { p.WaitForLog(t, "Waiting for the API server") }
	}
	for _, tt := range []struct {
		name   string
		signal os.Signal
		begin  func(*testing.T, *faults.Proxy) wait
	}{
		{"SIGTERM without an API server", syscall.SIGTERM, away},
		{"SIGINT without an API server", syscall.SIGINT, away},
		{"SIGHUP without an API server", syscall.SIGHUP, away},
		{"SIGTERM during the first request", syscall.SIGTERM, func(t *testing.T, proxy *faults.Proxy) wait {
			gate := faults.NewGate()
			t.Cleanup(gate.Open)
			proxy.Inject(faults.Match{}, faults.Hold(gate))
			return func(t *testing.T, _ *controlplane.Process) { gate.Next(t) }
		}},
		{"SIGTERM while caches are filled", syscall.SIGTERM, func(_ *testing.T, proxy *faults.Proxy) wait {
			proxy.FreezeWatches(faults.Watches())
			return func(t *testing.T, _ *controlplane.Process) {
				controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
					if proxy.OpenWatches(faults.Watches()) == 0 {
						return errors.New("no watch yet")
					}
					return nil
				})
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy := faults.New(t, cluster.Config())
			wait := tt.begin(t, proxy)
			p := controlplane.StartProcess(t, "--secure-port=0", "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()))
			wait(t, p)
			controlplane.Must(t, p.Signal(tt.signal))
			p.EndsWith(t, 0)
		})
	}
}

// startWithHeldCreate starts a leader whose write waits at the gate.
func startWithHeldCreate(t *testing.T, lease string, more ...string) (p *controlplane.Process, gate *faults.Gate) {
	t.Helper()
	namespace := cluster.Namespace(t)
	proxy := faults.New(t, cluster.Config())
	gate = faults.NewGate()
	t.Cleanup(gate.Open)
	proxy.Inject(faults.Match{Verbs: "create", Resource: "pods", Namespace: namespace}, faults.Hold(gate))
	cluster.Create(t, controlplane.ReplicaSet(namespace, "web", 1))
	p = controlplane.StartProcess(t, append([]string{"--secure-port=0", "--controllers=replicaset", "--leader-elect-resource-name=" + lease,
		"--kubeconfig=" + cluster.KubeconfigFor(t, proxy.Config()), "--controller-shutdown-timeout=10m"}, more...)...)
	gate.Next(t)
	return p, gate
}

// TestReadinessEndsBeforeTheDrain requires that /readyz fails before anything else happens.
func TestReadinessEndsBeforeTheDrain(t *testing.T) {
	port := controlplane.FreePort(t)
	p, gate := startWithHeldCreate(t, "readiness", fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1")
	passes := func(page string, want bool) {
		t.Helper()
		controlplane.Eventually(t, 10*time.Second, func(ctx context.Context) error {
			_, err := controlplane.Page(ctx, cluster.Config(), port, page)
			if passed := err == nil; passed != want {
				return fmt.Errorf("%s passes: %v, want %v: %v", page, passed, want, err)
			}
			return nil
		})
	}
	passes("/readyz", true)
	controlplane.Must(t, p.Signal(syscall.SIGTERM))
	passes("/readyz", false)
	passes("/livez", true)
	gate.Open() // also for a create that has been sent again
	p.EndsWith(t, 0)
}

// TestSecondSIGTERMEndsTheProcess: the first SIGTERM waits for a write without response.
func TestSecondSIGTERMEndsTheProcess(t *testing.T) {
	p, _ := startWithHeldCreate(t, "second-signal")
	controlplane.Must(t, p.Signal(syscall.SIGTERM))
	p.WaitForLog(t, "Term ends")
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		select {
		case <-p.Done():
			t.Fatalf("ended with %d before %v", p.ExitCode(), s)
		default:
			controlplane.Must(t, p.Signal(s))
		}
	}
	p.EndsWith(t, 1)
}
