package tainteviction

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// The tests of this file are about what upstream gets wrong; the rows are those of the specification.

func (w *world) mustBeDeletedAt(pod string, want time.Duration) {
	w.t.Helper()
	if got, ok := w.deletedAt(pod); !ok || got != want {
		w.t.Errorf("%s deleted: %v at %v, want at %v", pod, ok, got, want)
	}
}

func (w *world) mustLive(pod string) {
	w.t.Helper()
	if got, ok := w.deletedAt(pod); ok {
		w.t.Errorf("%s was deleted at %v, want it left alone", pod, got)
	}
}

// N77: a restart forgets nothing that the API server knows, and a standby nothing that it saw.
func TestRestart(t *testing.T) {
	const window = 50 * time.Second
	tolerant := func() *corev1.Pod {
		return aPod("p", tolerates("t1", 3000), tolerates(corev1.TaintNodeUnreachable, 300))
	}
	t.Run("an old taint of a user evicts at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Hour)), tolerant())
			defer w.manager(window)()
			w.mustBeDeletedAt("p", 0)
		})
	})
	t.Run("the time before the restart counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
			w.manager(window)()
			w.until(1000 * time.Second)
			defer w.manager(window)()
			w.until(4000 * time.Second)
			w.mustBeDeletedAt("p", 3000*time.Second)
		})
	})
	t.Run("a pod bound long after the taint has its full time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", 2*time.Hour)), tolerant())
			w.update("p", func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.begin.Add(-1001 * time.Second)),
				}}
			})
			defer w.manager(window)()
			w.until(4000 * time.Second)
			w.mustBeDeletedAt("p", 2000*time.Second)
		})
	})
	t.Run("a taint without time dates from when the standby saw it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			taint := noExecuteTaint("t1")
			w := newWorld(t, node1(corev1.ConditionTrue, taint), tolerant())
			c, stop := w.standby(window)
			defer stop()
			w.until(1000 * time.Second)
			defer w.run(c)()
			w.until(4000 * time.Second)
			w.mustBeDeletedAt("p", 3000*time.Second)
		})
	})
	t.Run("an hour away while the node dies, is tainted and recovers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node1(corev1.ConditionTrue), tolerant(), aPod("q"))
			stop := w.manager(window)
			w.until(time.Minute)
			w.node(func(n *corev1.Node) {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
				n.Spec.Taints = []corev1.Taint{nowTaint(corev1.TaintNodeUnreachable)}
			})
			synctest.Wait()
			stop()
			w.mustBeDeletedAt("q", time.Minute) // it had none
			w.until(time.Hour)
			w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
			defer w.manager(window)()
			w.until(2 * time.Hour)
			w.mustLive("p")
		})
	})
	t.Run("a second term of the same process knows nothing of the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
			c, stop := w.standby(window)
			defer stop()
			w.run(c)()
			if got := testutil.ToFloat64(c.metrics.pending); got != 0 {
				t.Errorf("%v evictions pending outside a term", got)
			}
			w.until(3001 * time.Second)
			w.mustLive("p")
			defer w.run(c)()
			w.mustBeDeletedAt("p", 3001*time.Second)
		})
	})
}

// N122: taints of node health are not trusted before a term has looked around.
func TestSettleWindow(t *testing.T) {
	const window = 50 * time.Second
	unreachable, notReady := corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady
	lease := func(ago time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(time.Now().Add(-ago))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "node1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
		}
	}
	renew := func(w *world) {
		if err := w.client.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease(0), corev1.NamespaceNodeLease); err != nil {
			t.Fatal(err)
		}
	}
	pod := func() *corev1.Pod { return aPod("p", tolerates(unreachable, 300), tolerates(notReady, 300)) }
	for _, tt := range []struct {
		name    string
		objects func() []runtime.Object
		steps   map[time.Duration]func(*world)
		want    time.Duration // -1: never
	}{
		{"a dead node's pods leave when the window is over", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod(), lease(time.Hour)}
		}, nil, window},
		{"also without a Lease", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod()}
		}, nil, window},
		{"their later deadline is not moved", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Second)), pod(), lease(time.Minute)}
		}, nil, 300 * time.Second},
		{"nobody leaves a node that has become Ready meanwhile", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionTrue, agoTaint(unreachable, time.Hour)), pod(), lease(0)}
		}, nil, -1},
		{"or does so within the window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod(), lease(time.Hour)}
		}, map[time.Duration]func(*world){49 * time.Second: func(w *world) {
			w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		}}, -1},
		{"a renewed Lease gives the node another window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod(), lease(time.Hour)}
		}, map[time.Duration]func(*world){20 * time.Second: renew}, 2 * window},
		{"a node that only ever renews its Lease has three", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod(), lease(time.Hour)}
		}, map[time.Duration]func(*world){20 * time.Second: renew, 60 * time.Second: renew, 120 * time.Second: renew}, 3 * window},
		{"a kubelet that says not ready is alive and needs no Lease", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionFalse, agoTaint(notReady, time.Hour)), pod(), lease(time.Hour)}
		}, map[time.Duration]func(*world){20 * time.Second: renew}, window},
		{"a taint that comes later is held no longer than the first window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown), aPod("p"), lease(time.Hour)}
		}, map[time.Duration]func(*world){20 * time.Second: func(w *world) { w.taint(nowTaint(unreachable)) }}, window},
		{"and not at all after it", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown), aPod("p"), lease(time.Hour)}
		}, map[time.Duration]func(*world){70 * time.Second: func(w *world) { w.taint(nowTaint(unreachable)) }}, 70 * time.Second},
		{"a node that falls silent again while it still has its old taint gets one window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionTrue, agoTaint(unreachable, time.Hour)), pod(), lease(time.Hour)}
		}, map[time.Duration]func(*world){60 * time.Second: func(w *world) {
			w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}}, 60*time.Second + window},
		{"a user's taint does not wait for those of health", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour), agoTaint("user", time.Hour)), pod()}
		}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.objects()...)
				defer w.manager(window)()
				var times []time.Duration
				for at := range tt.steps {
					times = append(times, at)
				}
				slices.Sort(times)
				for _, at := range times {
					w.until(at)
					tt.steps[at](w)
				}
				w.until(1000 * time.Second)
				if tt.want < 0 {
					w.mustLive("p")
				} else {
					w.mustBeDeletedAt("p", tt.want)
				}
			})
		})
	}
}

// N80: an eviction is retried until the pod is gone.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode("t1")(), aPod("p"))
		w.refuse = func(a clienttesting.Action) error {
			if a.GetVerb() == "delete" {
				return errors.New("a webhook says no")
			}
			return nil
		}
		defer w.manager(0)()
		w.until(10 * time.Minute)
		w.mustLive("p")
		if n := w.requests("delete pods"); n < 15 || n > 40 {
			t.Errorf("%d attempts in 10 minutes, want some 20: backed off, and still at it", n)
		}
		w.setRefuse(nil)
		w.until(12 * time.Minute)
		if at, ok := w.deletedAt("p"); !ok || at > 11*time.Minute+time.Second {
			t.Errorf("deleted: %v at %v, want within a minute of the webhook's change of mind", ok, at)
		}
		if marks := w.requests("patch pods"); marks != 1 {
			t.Errorf("marked %d times, want once", marks)
		}
		if diff := cmp.Diff([]string{marking("p")}, w.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// N80: an eviction that is called off after the mark was set takes the mark back, whoever set it.
func TestCalledOffAfterTheMark(t *testing.T) {
	refuseDelete := func(a clienttesting.Action) error {
		if a.GetVerb() == "delete" {
			return errors.New("a webhook says no")
		}
		return nil
	}
	for _, tt := range []struct {
		name string
		call func(*world)
	}{
		{"taint removed", func(w *world) { w.taint() }},
		{"toleration added", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerates("t1")} })
		}},
		{"limited toleration added", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerates("t1", 9000)} })
		}},
		{"node deleted", (*world).deleteNode},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", tt.name, restarted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, aNode("t1")(), aPod("p"))
					w.refuse = refuseDelete
					stop := w.manager(0)
					w.until(time.Second)
					if restarted {
						stop()
					}
					tt.call(w)
					if restarted {
						stop = w.manager(0)
					}
					w.until(10 * time.Minute)
					stop()
					conditions := w.pod("p").Status.Conditions
					if len(conditions) != 1 || conditions[0].Status != corev1.ConditionFalse {
						t.Errorf("conditions %+v, want one that is False", conditions)
					}
				})
			})
		}
	}
}

// The new leader's cache may show the old one's last mark only when the term has begun.
func TestMarkSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode()(), aPod("p"))
		defer w.manager(0)()
		w.update("p", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: markReason}}
		})
		w.until(time.Minute)
		if c := w.pod("p").Status.Conditions[0]; c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v, want it False", c)
		}
	})
}

// A mark that is another's, or has become another's since the cache was filled, is not taken back.
func TestMarkOfAnother(t *testing.T) {
	pod := func(reason string) *corev1.Pod {
		p := aPod("p")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
		return p
	}
	for _, cached := range []string{"EvictionByEvictionAPI", markReason} {
		t.Run(cached+" in the cache", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, aNode()(), pod(cached))
				w.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, pod("EvictionByEvictionAPI"), nil
				})
				defer w.manager(0)()
				w.until(time.Minute)
				if n := w.requests("patch pods"); n != 0 {
					t.Errorf("%d patches, want none", n)
				}
			})
		})
	}
}

// A delete whose answer was lost is not taken for one that was called off.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode("t1")(), aPod("p"))
		w.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if _, _, err := w.deletePod(a); err != nil {
				return true, nil, err
			}
			return true, nil, errors.New("the connection broke")
		})
		defer w.manager(0)()
		w.until(time.Minute)
		w.mustBeDeletedAt("p", 0)
		if diff := cmp.Diff([]string{marking("p")}, w.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// N81: work is for one pod, not for a name.
func TestSameName(t *testing.T) {
	second := func(tolerations ...corev1.Toleration) *corev1.Pod {
		pod := aPod("p", tolerations...)
		pod.UID = "second"
		return pod
	}
	t.Run("a tolerant pod of the same name is left alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
			defer w.manager(0)()
			w.until(9 * time.Second)
			w.remove("p")
			w.create(second(tolerates("t1")))
			w.until(time.Minute)
			w.mustLive("p")
		})
	})
	t.Run("an intolerant one is evicted all the same", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
			defer w.manager(0)()
			w.until(9 * time.Second)
			w.remove("p")
			w.create(second())
			w.until(time.Minute)
			w.mustBeDeletedAt("p", 9*time.Second)
		})
	})
	t.Run("one that the cache does not know yet is not touched on account of the first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p"))
			w.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, second(), nil })
			defer w.manager(0)()
			w.until(time.Minute)
			if n := w.requests("patch pods") + w.requests("delete pods"); n != 0 {
				t.Errorf("%d writes, want none", n)
			}
		})
	})
	t.Run("one that comes between the last look and the delete is safe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
			swapped := false
			w.refuse = func(a clienttesting.Action) error {
				if a.GetVerb() == "delete" && !swapped {
					swapped = true
					w.remove("p")
					w.create(second(tolerates("t1")))
				}
				return nil
			}
			defer w.manager(0)()
			w.until(time.Minute)
			w.mustLive("p")
			if !swapped {
				t.Error("no delete was sent")
			}
		})
	})
}

// N82: the caches may be behind; the API server is asked before a pod is evicted, and once for all pods of a node.
func TestLiveCheck(t *testing.T) {
	t.Run("a taint that is gone evicts nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
			w.client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, node1(corev1.ConditionTrue), nil // the cache has not heard
			})
			defer w.manager(0)()
			w.until(time.Minute)
			w.mustLive("p")
		})
	})
	t.Run("a toleration that was added keeps the pod", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p"))
			w.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, aPod("p", tolerates("t1")), nil
			})
			defer w.manager(0)()
			w.until(time.Minute)
			w.mustLive("p")
		})
	})
	t.Run("an unreadable node evicts nobody until it can be read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p"))
			w.refuse = func(a clienttesting.Action) error {
				if a.Matches("get", "nodes") {
					return errors.New("unreachable")
				}
				return nil
			}
			defer w.manager(0)()
			w.until(10 * time.Second)
			w.mustLive("p")
			w.setRefuse(nil)
			w.until(time.Minute)
			if _, ok := w.deletedAt("p"); !ok {
				t.Error("not deleted")
			}
		})
	})
	t.Run("an answer from before the node's last change is not used", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, aNode("t1")(), aPod("p"), aPod("q", tolerates("t1", 1000)))
			defer w.manager(0)()
			w.mustBeDeletedAt("p", 0) // the node was read
			w.until(200 * time.Millisecond)
			w.taint(nowTaint("t1"), nowTaint("t2"))
			w.until(time.Minute)
			w.mustBeDeletedAt("q", 200*time.Millisecond)
		})
	})
	t.Run("one read for all pods of a node", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			world := []runtime.Object{aNode("t1")()}
			for i := range 100 {
				world = append(world, aPod(fmt.Sprintf("p%d", i)))
			}
			w := newWorld(t, world...)
			defer w.manager(0)()
			w.until(500 * time.Millisecond)
			if n := len(w.deletes); n != 100 {
				t.Errorf("%d pods deleted, want 100", n)
			}
			if n := w.requests("get nodes"); n != 1 {
				t.Errorf("%d reads of the node, want 1", n)
			}
		})
	})
}

// N83: terminating pods are skipped, finished ones deleted without a mark.
func TestTerminatingAndFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving, succeeded, failed := aPod("leaving"), aPod("succeeded"), aPod("failed")
		deleted := metav1.Now()
		leaving.DeletionTimestamp = &deleted
		succeeded.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
		w := newWorld(t, aNode("t1")(), leaving, succeeded, failed)
		defer w.manager(0)()
		w.until(time.Second)
		w.taint(nowTaint("t2")) // another occasion
		w.until(time.Minute)
		w.mustLive("leaving")
		w.mustBeDeletedAt("succeeded", 0)
		w.mustBeDeletedAt("failed", 0)
		if got, want := []int{w.requests("patch pods"), w.requests("delete pods")}, []int{0, 2}; !slices.Equal(got, want) {
			t.Errorf("%v patches and deletes, want %v", got, want)
		}
	})
}

// N85: the deletion of a node cancels what was to come.
func TestNodeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
		defer w.manager(0)()
		w.until(time.Second)
		w.deleteNode()
		w.until(2 * time.Second)
		w.mustLive("p")
		if diff := cmp.Diff([]string{cancelling("p")}, w.told()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// te:TestPodDeletionEvent, and N79: the events have the pod's UID.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*world) // after a second
		at   time.Duration
		want []string
	}{
		{"an eviction", func(*world) {}, 10 * time.Second, []string{marking("p")}},
		{"taint removed", func(w *world) { w.taint() }, time.Second, []string{cancelling("p")}},
		{"tolerated for ever", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil })
		}, time.Second, []string{cancelling("p")}},
		{"pod deleted by another", func(w *world) { w.remove("p") }, time.Second, []string{cancelling("p")}},
		{"moved to a later time", func(w *world) {
			w.update("p", func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 20 })
		}, 20 * time.Second, []string{marking("p")}},
		{"moved to now", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations = nil })
		}, time.Second, []string{marking("p")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, aNode("t1")(), aPod("p", tolerates("t1", 10)))
				defer w.manager(0)()
				w.until(time.Second)
				tt.do(w)
				w.until(tt.at - 1)
				if tt.at > time.Second && len(w.told()) > 0 {
					t.Errorf("too early: %v", w.told())
				}
				w.until(tt.at)
				if diff := cmp.Diff(tt.want, w.told()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The durations are seconds: upstream's are not (pull requests 141311 and 141742).
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionUnknown, agoTaint(corev1.TaintNodeUnreachable, 21*time.Second)),
			aPod("p"), aPod("q", tolerates(corev1.TaintNodeUnreachable, 300)), aPod("r", tolerates(corev1.TaintNodeUnreachable)))
		c, stop := w.standby(50 * time.Second)
		defer stop()
		defer w.run(c)()
		if got := testutil.ToFloat64(c.metrics.pending); got != 2 {
			t.Errorf("%v evictions pending, want 2", got)
		}
		w.until(60 * time.Second) // the taint is taken for 20 s old, the window is 50 s
		if got := testutil.ToFloat64(c.metrics.pending); got != 1 {
			t.Errorf("%v evictions pending, want 1", got)
		}
		families, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				if h := m.GetHistogram(); h != nil {
					got[f.GetName()] = h.GetSampleSum()
				} else if m.GetCounter() != nil {
					got[f.GetName()] = m.GetCounter().GetValue()
				}
			}
		}
		for name, want := range map[string]float64{
			"taint_eviction_controller_pod_deletions_total":           1,
			"taint_eviction_controller_pod_deletion_duration_seconds": 70,
			"taint_eviction_controller_eviction_lateness_seconds":     70,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
}
