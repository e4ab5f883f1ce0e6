package deployment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
	"minikcm/test/must"
)

type change struct {
	name        string
	from        []func(*appsv1.Deployment)
	prepare     func(*namespace)
	change      func(*namespace)
	least, most int
	long        bool
}

var changes = []change{
	{
		name: "turned round", least: 3, most: 5,
		prepare: halfway,
		change:  func(n *namespace) { n.edit(image("v1")); n.kubelet.Ready(controlplane.All) },
	},
	{
		name: "rolled out", least: 3, most: 5, long: true,
		change: func(n *namespace) { n.edit(image("v2")) },
	},
	{
		name: "scaled up in the middle", least: 3, most: 7, long: true,
		prepare: halfway,
		change:  func(n *namespace) { n.edit(replicas(6)); n.kubelet.Ready(controlplane.All) },
	},
	{
		name: "recreated", from: []func(*appsv1.Deployment){recreate}, least: 0, most: 4, long: true,
		change: func(n *namespace) { n.edit(image("v2")) },
	},
}

func halfway(n *namespace) {
	n.kubelet.Ready(tagged("v1"))
	n.edit(image("v2"))
	n.set("v2", 2)
	n.set("v1", 3)
	n.status(func(s appsv1.DeploymentStatus) bool { return s.UpdatedReplicas == 2 && s.AvailableReplicas == 3 })
}

var deaths = []func(*faults.Gate) faults.Fault{faults.HoldAnswer, faults.Hold}

// TestKilledAtEachWrite kills the manager at each write, before the API server receives the write or before the
// manager receives the response, and starts another manager. One kill serves several Deployments at different writes.
func TestKilledAtEachWrite(t *testing.T) {
	const batch = 4 // writes
	next := start(t, "first")
	for _, c := range changes {
		if c.long && !controlplane.Long() {
			continue
		}
		over := false
		for first := 0; !over; first += batch {
			over = true
			ok := t.Run(fmt.Sprintf("%s/%d", c.name, first), func(sub *testing.T) {
				victims := make([]*victim, 0, batch*len(deaths))
				var all sync.WaitGroup
				for i := range batch {
					for _, fault := range deaths {
						v := &victim{change: c}
						victims = append(victims, v)
						all.Go(func() { v.meet(sub, next, fault, first+i) })
					}
				}
				all.Wait()
				if sub.Failed() {
					sub.FailNow()
				}
				if slices.ContainsFunc(victims, func(v *victim) bool { return v.held != nil }) {
					controlplane.Must(sub, next.Kill())
					next = start(t, fmt.Sprintf("manager after %d writes", first))
				}
				over = victims[len(victims)-1].held == nil
				for _, v := range victims {
					if v.held != nil {
						v.held.Cut()
					}
					v.observer.complete()
				}
			})
			if !ok {
				return
			}
		}
	}
}

type victim struct {
	change
	n        *namespace
	observer *observer
	held     *faults.Held // nil: there are fewer writes
}

func (v *victim) meet(t *testing.T, m *manager, fault func(*faults.Gate) faults.Fault, write int) {
	v.n = newNamespace(t)
	d := v.n.apply(4, append([]func(*appsv1.Deployment){rolling("1", "1")}, v.from...)...)
	v.n.complete()
	if v.prepare != nil {
		v.prepare(v.n)
	}
	v.observer = v.n.observe(d, v.least, v.most)
	resources := "replicasets"
	if v.long {
		resources += ",deployments,deployments/status"
	}
	gate := faults.NewGate()
	rule := m.proxy.Inject(v.n.on(faults.Writes, resources), fault(gate), faults.After(write), faults.Next(1))
	v.change.change(v.n)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	select {
	case v.held = <-gate.Held():
	case <-ended(ctx, v.n, rule):
	}
}

// ended is closed when the rollout is complete, and so no further write is to come that a rule would hit, or ctx ends.
func ended(ctx context.Context, n *namespace, rule *faults.Rule) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = must.Catch(func() {
			must.Poll(ctx, 100*time.Millisecond, func() bool {
				d, _, err := n.completed(ctx, "web")
				available := func(c appsv1.DeploymentCondition) bool { return c.Reason == "NewReplicaSetAvailable" }
				return err == nil && slices.ContainsFunc(d.Status.Conditions, available) && rule.Hits() == 0
			})
		})
	}()
	return done
}

// electionFlags make a lease that is worth waiting for. Ours and kube-controller-manager's have different names.
var electionFlags = []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}

// TestHandOverInTheMiddleOfRollouts: the leader ends or loses its lease, and another manager continues without
// repeating a write.
func TestHandOverInTheMiddleOfRollouts(t *testing.T) {
	const count = 4
	begun := time.Now()
	leader := start(t, "leader", electionFlags...)
	var all []*namespace
	var observers []*observer
	for range count {
		n := newNamespace(t)
		d := n.apply(4, rolling("1", "1"))
		all, observers = append(all, n), append(observers, n.observe(d, 0, 5))
	}
	for i, n := range all {
		n.complete()
		observers[i].bounds(3, 5)
		halfway(n)
	}
	start(t, "standby", electionFlags...)
	for i, n := range all {
		n.kubelet.Ready(controlplane.All)
		if i == count/2 {
			leader.stop(t)
		}
	}
	for i, n := range all {
		if i >= count/2 {
			n.edit(image(fmt.Sprintf("v%d", 1+i%2*2)))
		}
	}
	for _, o := range observers {
		o.complete()
	}
	lease := types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "controller-manager"}
	breaches, err := controlplane.JudgeLease(cluster.AuditLogSince(t, begun), lease, controlplane.ServiceAccount("leader"), controlplane.ServiceAccount("standby"))
	controlplane.Must(t, err)
	for _, b := range breaches {
		t.Error(b)
	}
	for i, o := range observers {
		want := 2
		if i >= count/2 && i%2 == 1 {
			want = 3
		}
		if o.seen() != want {
			t.Errorf("Deployment %d has had %d ReplicaSets, want %d", i, o.seen(), want)
		}
	}
}

// TestFrozenWatches delivers no events of one type while templates change.
func TestFrozenWatches(t *testing.T) {
	const frozen = 2 * time.Second
	m := start(t, "manager")
	for _, resource := range []string{"replicasets", "deployments", "pods"} {
		t.Run(resource, func(t *testing.T) {
			n := newNamespace(t)
			d := n.apply(4, rolling("1", "1"))
			n.complete()
			halfway(n)
			o := n.observe(d, 3, 5)
			freeze := m.proxy.FreezeWatches(faults.Watches(resource))
			begun := time.Now()
			n.kubelet.Ready(controlplane.All)
			n.edit(image("v3"))
			time.Sleep(time.Until(begun.Add(frozen / 2)))
			n.edit(image("v1"))
			time.Sleep(time.Until(begun.Add(frozen)))
			freeze.Thaw()
			o.complete()
			if seen := o.seen(); seen > 3 {
				t.Errorf("there were %d ReplicaSets, want 3 at the most", seen)
			}
		})
	}
}
