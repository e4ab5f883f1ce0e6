package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

type process struct {
	*controlplane.Process
	proxy *faults.Proxy
	user  string
}

func startProcess(t testing.TB, flags ...string) process {
	t.Helper()
	user, own := account()
	proxy := faults.New(t, own)
	flags = append([]string{"--kubeconfig=" + cluster.KubeconfigFor(t, proxy.Config()),
		"--controllers=garbagecollector", "--secure-port=0", "--leader-elect=false"}, flags...)
	return process{controlplane.StartProcess(t, flags...), proxy, user}
}

type cascade struct {
	name   string
	policy metav1.DeletionPropagation
	all    bool
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

type cascadeRun struct {
	cascade
	kept, keeper   thing
	leave, orphans []thing
	rule           *faults.Rule
	gate           *faults.Gate
	held           *faults.Held // nil: the cascade ended before the request
}

// begin deletes the owner of a cascade. The gate holds the cascade's write number n, counted from 0.
func (c cascade) begin(t *testing.T, proxy *faults.Proxy, n int) *cascadeRun {
	t.Helper()
	ns := cluster.Namespace(t)
	run := &cascadeRun{cascade: c, gate: faults.NewGate(), keeper: create(t, secrets, ns, "keeper")}
	owner, leave, orphans := c.build(t, ns)
	run.kept = create(t, configMaps, ns, "kept", ownedBy(run.keeper, owner))
	m := faults.On(faults.Writes, configMaps.Resource)
	m.Namespace = ns
	run.rule = proxy.Inject(m, faults.HoldAnswer(run.gate), faults.After(n), faults.Next(1))
	owner.delete(t, c.policy)
	for _, o := range leave {
		if c.all {
			o.delete(t, c.policy)
		}
	}
	run.leave, run.orphans = append(leave, owner), orphans
	return run
}

func (r *cascadeRun) done(t *testing.T, ctx context.Context) error {
	kept, err := r.kept.now(t, ctx)
	if err != nil || kept == nil || len(kept.GetOwnerReferences()) != 1 {
		return fmt.Errorf("%v is %v, want one owner: %w", r.kept, kept, err)
	}
	for _, o := range r.leave {
		if now, err := o.now(t, ctx); err != nil || now != nil {
			return fmt.Errorf("%v is still there: %w", o, err)
		}
	}
	for _, o := range r.orphans {
		now, err := o.now(t, ctx)
		if err != nil || now == nil || len(now.GetOwnerReferences()) > 0 || now.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%v is %v, want it to live without owners: %w", o, now, err)
		}
	}
	return nil
}

// heldOrDone waits until the gate holds a request or the cascade has ended, and reports whether a request is held.
func (r *cascadeRun) heldOrDone(t *testing.T) bool {
	t.Helper()
	controlplane.Eventually(t, soon, func(ctx context.Context) error {
		err := r.done(t, ctx)
		if err == nil && r.rule.Hits() > 0 {
			err = errors.New("the last response is on the way to the gate")
		}
		select {
		case r.held = <-r.gate.Held():
			return nil
		default:
			return err
		}
	})
	return r.held != nil
}

// TestKilledAtEachRequest kills the collector at each write before it receives the response, and starts another
// collector. Each process is killed while one write of each cascade is held.
func TestKilledAtEachRequest(t *testing.T) {
	next := startProcess(t)
	killed, left := map[string]int{}, cascades
	for n := 0; len(left) > 0; n++ {
		var runs []*cascadeRun
		for _, c := range left {
			runs = append(runs, c.begin(t, next.proxy, n))
		}
		left = nil
		for _, r := range runs {
			if r.heldOrDone(t) {
				left = append(left, r.cascade)
				killed[r.name]++
			}
		}
		if len(left) > 0 {
			controlplane.Must(t, next.Kill())
			for _, r := range runs {
				if r.held != nil {
					r.held.Cut()
				}
			}
			next = startProcess(t)
		}
		for _, r := range runs {
			controlplane.Eventually(t, 2*soon, func(ctx context.Context) error { return r.done(t, ctx) })
			owners(t, soon, r.kept, r.keeper)
			alive(t, append(r.orphans, r.kept, r.keeper)...)
		}
	}
	t.Logf("killed at %v requests", killed)
	for _, c := range cascades {
		if killed[c.name] < 3 {
			t.Errorf("%s: killed at %d requests, want 3 at least", c.name, killed[c.name])
		}
	}
}

// TestHandOverInTheMiddleOfACascade: the standby continues the cascade, and no write is outside of a term.
func TestHandOverInTheMiddleOfACascade(t *testing.T) {
	ns := cluster.Namespace(t)
	const size = 200
	owner := create(t, secrets, ns, "owner")
	var leave []thing
	for n := range size {
		leave = append(leave, create(t, configMaps, ns, fmt.Sprint("dependent-", n), ownedBy(owner)))
	}
	first := startProcess(t, "--leader-elect")
	gate := faults.NewGate()
	t.Cleanup(gate.Open)
	first.proxy.Inject(faults.On("delete", configMaps.Resource), faults.Hold(gate), faults.After(size/10))
	settled(t, ns)
	second := startProcess(t, "--leader-elect")
	controlplane.Eventually(t, soon, func(context.Context) error {
		if second.proxy.OpenWatches(faults.Watches(secrets.Resource)) == 0 || second.proxy.OpenWatches(faults.Watches(configMaps.Resource)) == 0 {
			return errors.New("the standby does not watch yet")
		}
		return nil
	})
	settled(t, ns)
	owner.delete(t, metav1.DeletePropagationBackground)
	controlplane.Eventually(t, soon, func(context.Context) error {
		if n := first.proxy.Count("delete", configMaps.Resource, 200); n < size/10 {
			return fmt.Errorf("%d of %d are deleted", n, size)
		}
		return nil
	})
	controlplane.Must(t, first.Signal(syscall.SIGTERM))
	first.WaitForLog(t, "Term ends")
	gate.Open()
	_, err := first.Wait(time.Minute)
	controlplane.Must(t, err)
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
	t.Logf("%d deleted by the first, %d by the second, %v between the last answer to one and the first request of the other",
		deleted[first.user], deleted[second.user], begun.Sub(last))
	if deleted[second.user] == 0 || begun.Before(last) {
		t.Errorf("the first was answered last at %v, the second, which deleted %d, began at %v", last, deleted[second.user], begun)
	}
}
