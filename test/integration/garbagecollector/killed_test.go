package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// process is a manager that runs nothing but the garbage collector, as a process of its own, with a proxy before the API server.
type process struct {
	*controlplane.Process
	proxy *faults.Proxy
	user  string
}

func startProcess(t testing.TB, flags ...string) process {
	t.Helper()
	account := "gc-" + rand.String(8)
	own := cluster.ManagerConfig(account, garbagecollector.Name)
	proxy := faults.New(t, own)
	through := proxy.Config()
	through.TLSClientConfig.CertData, through.TLSClientConfig.KeyData = own.TLSClientConfig.CertData, own.TLSClientConfig.KeyData
	if len(flags) == 0 {
		flags = []string{"--leader-elect=false"}
	}
	flags = append([]string{"--kubeconfig=" + cluster.KubeconfigFor(t, through), "--controllers=garbagecollector", "--secure-port=0"}, flags...)
	return process{controlplane.StartProcess(t, flags...), proxy, controlplane.ServiceAccount(account)}
}

// cascade is an owner that is deleted, and what has to become of everything else.
type cascade struct {
	name   string
	policy metav1.DeletionPropagation
	all    bool // whatever is to leave is deleted so
	build  func(t *testing.T, ns string) (owner thing, leave, orphans []thing)
}

var cascades = []cascade{
	{"background", metav1.DeletePropagationBackground, false, func(t *testing.T, ns string) (thing, []thing, []thing) {
		owner := create(t, configMaps, ns, "owner")
		return owner, []thing{create(t, configMaps, ns, "one", ownedBy(owner)), create(t, configMaps, ns, "two", ownedBy(owner))}, nil
	}},
	{"foreground", metav1.DeletePropagationForeground, false, func(t *testing.T, ns string) (thing, []thing, []thing) {
		owner := create(t, configMaps, ns, "owner")
		middle := create(t, configMaps, ns, "middle", blockedBy(owner))
		return owner, []thing{middle, create(t, configMaps, ns, "leaf", blockedBy(middle))}, nil
	}},
	{"ring", metav1.DeletePropagationForeground, true, func(t *testing.T, ns string) (thing, []thing, []thing) {
		owner := create(t, configMaps, ns, "owner")
		second := create(t, configMaps, ns, "second", blockedBy(owner))
		third := create(t, configMaps, ns, "third", blockedBy(second))
		ref := third.reference()
		owner.patch(t, map[string]any{"ownerReferences": []any{map[string]any{
			"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name, "uid": ref.UID, "blockOwnerDeletion": true,
		}}})
		return owner, []thing{second, third}, nil
	}},
	{"orphan", metav1.DeletePropagationOrphan, false, func(t *testing.T, ns string) (thing, []thing, []thing) {
		owner := create(t, configMaps, ns, "owner")
		return owner, nil, []thing{create(t, configMaps, ns, "one", ownedBy(owner)), create(t, configMaps, ns, "two", blockedBy(owner))}
	}},
}

// ended fails until everything has become of a cascade that has to.
func ended(t *testing.T, ctx context.Context, leave, orphans []thing) error {
	for _, o := range leave {
		if now, err := o.now(t, ctx); err != nil || now != nil {
			return fmt.Errorf("%v is still there: %w", o, err)
		}
	}
	for _, o := range orphans {
		now, err := o.now(t, ctx)
		if err != nil || now == nil || len(now.GetOwnerReferences()) > 0 || now.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%v is %v, want it to live without owners: %w", o, now, err)
		}
	}
	return nil
}

// A collector is killed at each of its requests in turn, before the API server has it or before the answer is back, and another begins.
func TestKilledAtEachRequest(t *testing.T) {
	next := startProcess(t)
	for _, c := range cascades {
		for _, when := range []struct {
			name  string
			fault func(*faults.Gate) faults.Fault
			long  bool
		}{{"done", faults.HoldAnswer, false}, {"lost", faults.Hold, true}} {
			if when.long && !controlplane.Long() {
				continue
			}
			killed := 0
			for over := false; !over; {
				ok := t.Run(fmt.Sprintf("%s/%s/%d", c.name, when.name, killed), func(sub *testing.T) {
					ns := cluster.Namespace(sub)
					keeper := create(sub, secrets, ns, "keeper")
					owner, leave, orphans := c.build(sub, ns)
					kept := create(sub, configMaps, ns, "kept", ownedBy(keeper, owner))
					m := faults.On(faults.Writes, configMaps.Resource)
					m.Namespace = ns
					gate := faults.NewGate()
					rule := next.proxy.Inject(m, when.fault(gate), faults.After(killed), faults.Next(1))
					owner.delete(sub, c.policy)
					for _, o := range leave {
						if c.all {
							o.deleteIfThere(sub, c.policy)
						}
					}
					leave = append(leave, owner)
					done := func(ctx context.Context) error {
						now, err := kept.now(sub, ctx)
						if err != nil || now == nil || len(now.GetOwnerReferences()) != 1 {
							return fmt.Errorf("%v is %v, want it to have one owner: %w", kept, now, err)
						}
						return ended(sub, ctx, leave, orphans)
					}
					struck, patience := false, 50*time.Millisecond
					for stop := time.Now().Add(soon); !struck && !over; {
						select {
						case held := <-gate.Held():
							check(sub, next.Kill())
							held.Cut()
							next = startProcess(t)
							controlplane.Eventually(sub, 2*soon, done)
							struck = true
							killed++
						case <-time.After(patience):
							switch err := done(sub.Context()); {
							case err == nil && patience == time.Second:
								over = true
							case err == nil:
								patience = time.Second // the answer to the last request may be about to be held
							case time.Now().After(stop):
								sub.Fatal(err)
							}
						}
					}
					rule.Remove()
					owners(sub, soon, kept, keeper)
					alive(sub, append(orphans, kept, keeper)...)
				})
				if !ok {
					return
				}
			}
			t.Logf("%s, %s: killed at %d requests", c.name, when.name, killed)
			if killed < 3 {
				t.Errorf("%s, %s: killed at %d requests, want 3 at least", c.name, when.name, killed)
			}
		}
	}
}

// The leader goes in the middle of a cascade, and the standby goes on where it was. Nobody writes before or after his time.
func TestHandOverInTheMiddleOfACascade(t *testing.T) {
	ns := cluster.Namespace(t)
	size := 200
	if controlplane.Long() {
		size = 2000
	}
	owner := create(t, secrets, ns, "owner")
	var leave []thing
	for n := range size {
		leave = append(leave, create(t, configMaps, ns, fmt.Sprint("dependent-", n), ownedBy(owner)))
	}
	first := startProcess(t, "--leader-elect")
	gate := faults.NewGate()
	t.Cleanup(gate.Open)
	// It does not come to the end.
	first.proxy.Inject(faults.On("delete", configMaps.Resource), faults.Hold(gate), faults.After(size/10))
	settled(t, ns) // it leads
	second := startProcess(t, "--leader-elect")
	controlplane.Eventually(t, soon, func(context.Context) error {
		if second.proxy.OpenWatches(faults.Watches(secrets.Resource)) == 0 || second.proxy.OpenWatches(faults.Watches(configMaps.Resource)) == 0 {
			return errors.New("the standby does not watch yet")
		}
		return nil
	})
	settled(t, ns) // what the leader has seen by now, the standby has
	owner.delete(t, metav1.DeletePropagationBackground)
	controlplane.Eventually(t, soon, func(context.Context) error {
		if n := first.proxy.Count("delete", configMaps.Resource, 200); n < size/10 {
			return fmt.Errorf("%d of %d are deleted", n, size)
		}
		return nil
	})
	check(t, first.Signal(syscall.SIGTERM))
	first.WaitForLog(t, "Term ends")
	gate.Open()
	_, err := first.Wait(time.Minute)
	check(t, err)
	gone(t, 2*soon, leave...)
	var last, begun time.Time
	deleted := map[string]int{}
	for _, e := range cluster.AuditLog(t, controlplane.ByNamespace(ns), controlplane.ByResource(configMaps.Resource), controlplane.Writes, controlplane.Completed) {
		switch e.User.Username {
		case first.user:
			if e.StageTimestamp.After(last) {
				last = e.StageTimestamp.Time
			}
		case second.user:
			if begun.IsZero() || e.RequestReceivedTimestamp.Time.Before(begun) {
				begun = e.RequestReceivedTimestamp.Time
			}
		}
		if e.Verb == "delete" && e.ResponseStatus.Code == 200 {
			deleted[e.User.Username]++
		}
	}
	t.Logf("%d deleted by the first, %d by the second, %v between the last answer to one and the first request of the other", deleted[first.user], deleted[second.user], begun.Sub(last))
	if deleted[second.user] == 0 || begun.Before(last) {
		t.Errorf("the first was answered last at %v, the second, which deleted %d, began at %v", last, deleted[second.user], begun)
	}
}
