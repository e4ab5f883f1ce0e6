package tainteviction

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An interrupted watch may replace a node by a node of the same name and taints in one event.
func TestNodeReplacedInOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, noExecuteTaint("t1")), aPod("p", tolerates("t1", 100)))
		defer w.manager(0)()
		w.until(50 * time.Second)
		w.node(func(n *corev1.Node) { n.UID = "another" })
		w.until(300 * time.Second)
		w.mustBeDeletedAt("p", 150*time.Second) // the taint has no time: it dates from when its node was first seen
	})
}

// A refusal that looks like the conflict of a UID is still a refusal.
func TestRefusalsOfAllKinds(t *testing.T) {
	for name, refusal := range map[string]error{
		"conflict":          apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("not now")),
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"internal error":    apierrors.NewInternalError(errors.New("webhook")),
		"invalid":           apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil),
	} {
		for _, refused := range []string{"patch pods/status", "delete pods"} {
			t.Run(name+" of "+refused, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, aNode("t1")(), aPod("p"))
					w.Break(refusal, refused)
					defer w.manager(0)()
					w.until(10 * time.Minute)
					if n := w.Count(refused); n < 5 || n > 40 {
						t.Errorf("%d tries in ten minutes, want a few", n)
					}
					w.Break(nil, refused)
					w.until(12 * time.Minute)
					if _, ok := w.deletedAt("p"); !ok {
						t.Error("never deleted")
					}
				})
			})
		}
	}
}

func TestOddTolerations(t *testing.T) {
	many := func(seconds int64) []corev1.Toleration {
		var all []corev1.Toleration
		for i := range 500 {
			all = append(all, tolerates(fmt.Sprint("other", i), 1))
		}
		return append(all, tolerates("t1", seconds))
	}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want time.Duration // -1: never
	}{
		{"zero seconds", aPod("p", tolerates("t1", 0)), 0},
		{"negative seconds", aPod("p", tolerates("t1", -1)), 0},
		{"the least there is", aPod("p", tolerates("t1", math.MinInt64)), 0},
		{"more than a duration holds", aPod("p", tolerates("t1", math.MaxInt64)), -1},
		{"almost as much as it holds", aPod("p", tolerates("t1", longestToleration)), -1},
		{"the last of many", aPod("p", many(7)...), 7 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
				w := newWorld(t, aNode("t1")(), tt.pod)
				defer w.manager(0)()
				w.until(7 * 24 * time.Hour)
				if tt.want < 0 {
					w.mustLive("p")
					return
				}
				w.mustBeDeletedAt("p", tt.want)
			})
		})
	}
}

func TestPodOnNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stray := aPod("stray")
		stray.Spec.NodeName = "never-was"
		w := newWorld(t, aNode("t1")())
		defer w.manager(0)()
		w.Put(stray)
		w.until(time.Hour)
		w.mustLive("stray")
		if n := w.Count("get pods") + w.Count("get nodes"); n != 0 {
			t.Errorf("%d reads for a pod of a node that does not exist", n)
		}
	})
}

// The leader dies amid evictions, some of them marked and not deleted; the standby goes on and restarts no clock.
func TestStandbyTakesOverAmidEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taint := nowTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue), aPod("now"), aPod("soon", tolerates("t1", 30)), aPod("later", tolerates("t1", 100)))
		c, stopStandby := w.standby(0)
		defer stopStandby()
		stopLeader := w.manager(0)
		w.Break(errors.New("the leader died here"), "delete pods")
		w.taint(taint)
		w.until(40 * time.Second)
		stopLeader()
		w.Break(nil, "delete pods", "get nodes")
		w.until(50 * time.Second)
		defer w.run(c)()
		w.until(200 * time.Second)
		w.mustBeDeletedAt("now", 50*time.Second)
		w.mustBeDeletedAt("soon", 50*time.Second)
		w.mustBeDeletedAt("later", 100*time.Second)
		if n := w.Count("delete pods"); n < 3 {
			t.Errorf("%d deletes", n)
		}
	})
}
