package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func heldDelete(t *testing.T, proxy *faults.Proxy, ns, name string) (*faults.Gate, *faults.Rule) {
	t.Helper()
	gate := faults.NewGate()
	m := faults.On("delete", configMaps.Resource)
	m.Namespace, m.Name = ns, name
	return gate, proxy.Inject(m, faults.Hold(gate), faults.Next(1))
}

func testObjectChanges(t *testing.T, c *collector, proxy *faults.Proxy) {
	for _, tt := range []struct {
		name  string
		stays bool
		do    func(t *testing.T, ns string, o, other thing) thing
	}{
		{"it gets an owner that lives", true, func(t *testing.T, _ string, o, other thing) thing {
			o.patch(t, map[string]any{"ownerReferences": []any{other.reference()}})
			return o
		}},
		{"it is written to in what does not count", false, func(t *testing.T, _ string, o, _ thing) thing {
			o.patch(t, map[string]any{"annotations": map[string]any{"a": "b"}})
			return o
		}},
		{"another takes its name", true, func(t *testing.T, ns string, o, other thing) thing {
			o.delete(t, metav1.DeletePropagationBackground)
			return create(t, configMaps, ns, o.GetName(), ownedBy(other))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := cluster.Namespace(t)
			owner, other := create(t, secrets, ns, "owner"), create(t, secrets, ns, "other")
			o := create(t, configMaps, ns, "object", ownedBy(owner))
			settled(t, ns)
			gate, rule := heldDelete(t, proxy, ns, o.GetName())
			owner.delete(t, metav1.DeletePropagationBackground)
			held := gate.Next(t)
			o = tt.do(t, ns, o, other)
			held.Release()
			if !tt.stays {
				gone(t, soon, o)
			}
			settled(t, ns)
			rule.Remove()
			if tt.stays {
				alive(t, o, other)
			}
			if n := len(c.writes(t, controlplane.ByNamespace(ns), controlplane.ByName("object"), controlplane.ByCode(409))); n == 0 {
				t.Error("no delete was answered with a conflict")
			}
		})
	}
}

// Objects of an ignored type stay. Owners of an ignored type are read one by one.
func TestIgnoredTypes(t *testing.T) {
	ns := cluster.Namespace(t)
	c := start(t, nil, "--garbage-collector-ignored-resources=configmaps")
	owner := create(t, secrets, ns, "owner")
	stays := create(t, configMaps, ns, "stays", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	ignored, lives := create(t, configMaps, ns, "ignored"), create(t, configMaps, ns, "lives")
	ref := ignored.reference()
	ignored.delete(t, metav1.DeletePropagationBackground)
	leaves, kept := create(t, secrets, ns, "leaves", refers(ref)), create(t, secrets, ns, "kept", ownedBy(lives))
	gone(t, soon, leaves)
	settled(t, ns)
	alive(t, stays, kept, lives)
	if got := cluster.AuditLog(t, controlplane.ByUser(c.user), controlplane.ByVerb("watch", "list"), controlplane.ByResource(configMaps.Resource)); len(got) > 0 {
		t.Errorf("requests for an ignored type:\n%v", got)
	}
}

// TestBesideTheCollectorOfKubeControllerManager requires the same result from both collectors together as from either.
func TestBesideTheCollectorOfKubeControllerManager(t *testing.T) {
	ns := cluster.Namespace(t)
	start(t, nil)
	upstream, err := controlplane.Binary("kube-controller-manager")
	check(t, err)
	const theirs = "system:kube-controller-manager"
	controlplane.StartProgram(t, upstream, "--kubeconfig="+cluster.Kubeconfig(t, theirs, "system:masters"), "--controllers=garbage-collector-controller",
		"--leader-elect=false", "--secure-port=0")
	background, foreground, orphan := create(t, rcs, ns, "background"), create(t, rcs, ns, "foreground"), create(t, rcs, ns, "orphan")
	lives := create(t, rcs, ns, "lives")
	var leave, stay, shared []thing
	for n := range 20 {
		leave = append(leave, create(t, pods, ns, fmt.Sprint("b-", n), ownedBy(background)), create(t, configMaps, ns, fmt.Sprint("f-", n), blockedBy(foreground)))
		stay = append(stay, create(t, pods, ns, fmt.Sprint("o-", n), ownedBy(orphan)))
		shared = append(shared, create(t, secrets, ns, fmt.Sprint("s-", n), ownedBy(background, lives)))
	}
	// Upstream's collector misses orphans that its cache lacks; it has the pods when it reads a later one.
	last := create(t, pods, ns, "last", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "never", UID: "never"}))
	controlplane.Eventually(t, 2*soon, func(context.Context) error {
		if len(cluster.AuditLog(t, controlplane.ByUser(theirs), controlplane.ByVerb("get"), controlplane.ByNamespace(ns), controlplane.ByName(last.GetName()))) == 0 {
			return errors.New("it has not looked at the last pod yet")
		}
		return nil
	})
	background.delete(t, metav1.DeletePropagationBackground)
	foreground.delete(t, metav1.DeletePropagationForeground)
	orphan.delete(t, metav1.DeletePropagationOrphan)
	gone(t, 2*soon, append(leave, background, foreground, orphan)...)
	settled(t, ns)
	alive(t, append(append(stay, shared...), lives)...)
	for _, o := range stay {
		owners(t, soon, o)
	}
	for _, o := range shared {
		owners(t, soon, o, lives)
	}
}
