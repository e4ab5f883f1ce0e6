package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"minikcm/pkg/controllers/replicaset"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// daemon is the manager as a process of its own, behind a proxy of its own.
type daemon struct {
	*controlplane.Process
	proxy *faults.Proxy
}

// startDaemon starts the manager without a lease, so that the next may work at once. The proxy is scripted before it starts.
func startDaemon(t *testing.T, name string, script func(*faults.Proxy)) *daemon {
	t.Helper()
	proxy := faults.New(t, cluster.ManagerConfig("manager", replicaset.Name), faults.WithName(name))
	if script != nil {
		script(proxy)
	}
	process := controlplane.StartProcess(t, "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()),
		"--controllers=replicaset-controller", "--leader-elect=false", "--secure-port=0", "-v=2")
	return &daemon{process, proxy}
}

func (d *daemon) kill(t *testing.T) {
	t.Helper()
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestKilled: the manager is killed between a write and its answer, and another takes over.
func TestKilled(t *testing.T) {
	for _, tt := range []struct {
		name     string
		verb     string
		from, to int32
		fault    func(*faults.Gate) faults.Fault
		// late: the write is committed only after the other manager has finished. That is the one case in which nobody can
		// help a pod too many, for a moment.
		late bool
	}{
		{"CreateCommitted", "create", 3, 12, faults.HoldAnswer, false},
		{"CreateCommitsLate", "create", 3, 12, faults.Hold, true},
		{"DeleteCommitted", "delete", 9, 3, faults.HoldAnswer, false},
		{"DeleteCommitsLate", "delete", 9, 3, faults.Hold, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNamespace(t)
			gate := faults.NewGate()
			first := startDaemon(t, "first", func(p *faults.Proxy) {
				p.Inject(on(n, tt.verb), tt.fault(gate), faults.After(int(tt.from)*boolToInt(tt.verb == "create")+2), faults.Next(1))
			})
			rs := n.apply(tt.from)
			o := n.observe(rs, 0, int(tt.from))
			o.settledAt(int(tt.from))
			o.bounds(int(min(tt.from, tt.to)), int(max(tt.from, tt.to)))
			n.scale("rs", tt.to)
			held := gate.Next(t)
			first.kill(t)

			startDaemon(t, "second", nil)
			o.settledAt(int(tt.to))
			if tt.late && tt.verb == "create" {
				o.bounds(int(tt.to), int(tt.to)+1)
			}
			held.Release()
			if tt.late {
				n.eventually(func(context.Context) error { return arrived(first.proxy, held) })
			}
			o.settledAt(int(tt.to))
		})
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// arrived fails until the server has answered a request that was held.
func arrived(p *faults.Proxy, held *faults.Held) error {
	for _, r := range p.Requests() {
		if r.Time.Equal(held.Request.Time) && r.Path == held.Request.Path && r.Code != 0 {
			return nil
		}
	}
	return fmt.Errorf("%s %s has not been answered", held.Request.Method, held.Request.Path)
}

// TestKilledAgainAndAgain kills the manager at random moments while it scales, each time followed by another at once.
func TestKilledAgainAndAgain(t *testing.T) {
	n := newNamespace(t)
	const most = 60
	slow := func(p *faults.Proxy) { // so that there is something to kill into
		p.Inject(on(n, faults.Writes), faults.Join(faults.DelayRequest(10*time.Millisecond), faults.DelayAnswer(10*time.Millisecond)))
	}
	rs := n.apply(most)
	o := n.observe(rs, 0, most)
	random := faults.New(t, cluster.Config(), faults.WithName("random")).Rand("when to kill")
	inFlight := 0
	for i := range 4 {
		d := startDaemon(t, fmt.Sprintf("manager-%d", i), slow)
		n.eventually(func(context.Context) error {
			if d.proxy.Count("create", "pods", 0) == 0 {
				return fmt.Errorf("manager %d has created nothing yet", i)
			}
			return nil
		})
		time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
		d.kill(t)
		for _, r := range d.proxy.Requests() {
			if r.Verb == "create" && r.Resource == "pods" && !r.Answered {
				inFlight++
			}
		}
		o.bounds(0, most+inFlight) // each may be committed after the next manager has looked
		if len(n.active(rs)) == most {
			break
		}
	}
	startDaemon(t, "last", nil)
	o.settledAt(most)
	t.Logf("%d creates were in flight when their manager was killed, %d pods were made", inFlight, o.seen())
}
