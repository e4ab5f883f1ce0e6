package tainteviction

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

// An eviction is for a UID, not for a name.
func TestSameName(t *testing.T) {
	second := func(tolerations ...corev1.Toleration) *corev1.Pod {
		pod := aPod("p", tolerations...)
		pod.UID = "second"
		return pod
	}
	start := objects{aNode("t1"), aPod("p", tolerates("t1", 10))}
	replaceBy := func(tolerations ...corev1.Toleration) map[time.Duration]func(*world) {
		return map[time.Duration]func(*world){9 * time.Second: func(w *world) {
			w.Remove("pods", "default", "p")
			w.Put(second(tolerations...))
		}}
	}
	scenario{"a tolerant pod of the same name stays", start, replaceBy(tolerates("t1")), map[string]time.Duration{}}.run(t, 0)
	scenario{"an intolerant one is evicted", start, replaceBy(), map[string]time.Duration{"p": 9 * time.Second}}.run(t, 0)
	inBubble(t, "one that the cache does not know yet is not touched on account of the first", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, second(), nil })
		defer w.manager(0)()
		w.Until(time.Minute)
		if n := w.Count("patch pods") + w.Count("delete pods"); n != 0 {
			t.Errorf("%d writes, want none", n)
		}
	})
	inBubble(t, "one that comes between the last look and the delete is safe", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10)))
		swapped := false
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !swapped {
				swapped = true
				w.Remove("pods", "default", "p")
				w.Put(second(tolerates("t1")))
			}
			return false, nil, nil
		})
		defer w.manager(0)()
		w.Until(time.Minute)
		w.mustLive("p")
		if !swapped {
			t.Error("no delete was sent")
		}
	})
}

// Node and pod are read live before an eviction. All pods of a node share a read of the node.
func TestLiveCheck(t *testing.T) {
	inBubble(t, "a taint that is gone evicts nobody", func(t *testing.T) {
		w, reads := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10))), 0
		w.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return true, node1(corev1.ConditionTrue), nil // the cache still shows the taint
		})
		defer w.manager(0)()
		w.Until(time.Minute)
		w.mustLive("p")
		if n := w.Count("get pods"); n != 0 {
			t.Errorf("%d reads of the pod, want none: its node keeps every pod", n)
		}
		if reads > 3 {
			t.Errorf("%d reads of the node in a minute, want one each 30 s", reads)
		}
	})
	inBubble(t, "a toleration that was added keeps the pod", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, aPod("p", tolerates("t1")), nil
		})
		defer w.manager(0)()
		w.Until(time.Minute)
		w.mustLive("p")
	})
	inBubble(t, "an unreadable node evicts nobody until it can be read", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.Break(errors.New("unreachable"), "get nodes")
		defer w.manager(0)()
		w.Until(10 * time.Second)
		w.mustLive("p")
		w.Break(nil, "delete pods", "get nodes")
		w.Until(time.Minute)
		if _, ok := w.deletedAt("p"); !ok {
			t.Error("not deleted")
		}
	})
	inBubble(t, "an answer from before the node's last change is not used", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"), aPod("q", tolerates("t1", 1000)))
		defer w.manager(0)()
		w.mustBeDeletedAt("p", 0) // the node was read
		w.Until(200 * time.Millisecond)
		w.taint(nowTaint("t1"), nowTaint("t2"))
		w.Until(time.Minute)
		w.mustBeDeletedAt("q", 200*time.Millisecond)
	})
	inBubble(t, "one read for all pods of a node", func(t *testing.T) {
		world := objects{aNode("t1")}
		for i := range 100 {
			world = append(world, aPod(fmt.Sprintf("p%d", i)))
		}
		w := newWorld(t, world...)
		defer w.manager(0)()
		w.Until(500 * time.Millisecond)
		if n := len(w.deletes()); n != 100 {
			t.Errorf("%d pods deleted, want 100", n)
		}
		if n := w.Count("get nodes"); n != 1 {
			t.Errorf("%d reads of the node, want 1", n)
		}
	})
}

// Events of pods on a node without taints cost no sync.
func TestPodsOfUntaintedNodesAreNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode(), aPod("p"))
		defer w.manager(0)()
		before := fakeapi.Syncs(t, w.Metrics, "noexec_taint_pod")
		for i := range 10 {
			w.Put(aPod(fmt.Sprint("q", i)))
		}
		w.Until(time.Second)
		if n := fakeapi.Syncs(t, w.Metrics, "noexec_taint_pod") - before; n != 0 {
			t.Errorf("%d syncs for ten new pods, want none", n)
		}
	})
}
