package tainteviction

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
