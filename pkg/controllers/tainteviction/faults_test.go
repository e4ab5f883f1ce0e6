package tainteviction

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/internal/fakeapi"
)

// An interrupted watch may replace a node by a node of the same name and taints in one event.
func TestNodeReplacedInOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, noExecuteTaint("t1")), aPod("p", tolerates("t1", 100)))
		defer w.manager(0)()
		w.Until(50 * time.Second)
		w.node(func(n *corev1.Node) { n.UID = "another" })
		w.Until(300 * time.Second)
		w.mustBeDeletedAt("p", 150*time.Second) // a taint without a time dates from the first sight of the node
	})
}

// A refusal that looks like the conflict of a UID is still a refusal.
func TestRefusalsOfAllKinds(t *testing.T) {
	for name, refusal := range fakeapi.NewRefusals("Pod", "pods", "p") {
		for _, refused := range []string{"get nodes", "get pods", "patch pods/status", "delete pods"} {
			t.Run(name+" of "+refused, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, aNode("t1"), aPod("p"))
					w.Break(refusal, refused)
					defer w.manager(0)()
					w.Until(10 * time.Minute)
					if n := w.Count(refused); n < 5 || n > 40 {
						t.Errorf("%d tries in ten minutes, want a few", n)
					}
					w.Break(nil, refused)
					w.Until(12 * time.Minute)
					if _, ok := w.deletedAt("p"); !ok {
						t.Error("never deleted")
					}
				})
			})
		}
	}
}

func TestPodOnNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stray := aPod("stray")
		stray.Spec.NodeName = "never-was"
		w := newWorld(t, aNode("t1"))
		defer w.manager(0)()
		w.Put(stray)
		w.Until(time.Hour)
		w.mustLive("stray")
		if n := w.Count("get pods") + w.Count("get nodes"); n != 0 {
			t.Errorf("%d reads for a pod of a node that does not exist", n)
		}
	})
}

// The leader dies amid evictions: some pods are marked and not deleted. The standby restarts no deadline.
func TestStandbyTakesOverAmidEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taint := nowTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue), aPod("now"), aPod("soon", tolerates("t1", 30)), aPod("later", tolerates("t1", 100)))
		c, stopStandby := w.standby(0)
		defer stopStandby()
		stopLeader := w.manager(0)
		w.Break(errors.New("the leader died here"), "delete pods")
		w.taint(taint)
		w.Until(40 * time.Second)
		stopLeader()
		w.Break(nil, "delete pods", "get nodes")
		w.Until(50 * time.Second)
		defer w.run(c)()
		w.Until(200 * time.Second)
		w.mustBeDeletedAt("now", 50*time.Second)
		w.mustBeDeletedAt("soon", 50*time.Second)
		w.mustBeDeletedAt("later", 100*time.Second)
		if n := w.Count("delete pods"); n < 3 {
			t.Errorf("%d deletes", n)
		}
	})
}
