package podgc

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
	"minikcm/pkg/outcome"
)

// A delete is bounded in time, because the node may return meanwhile.
func TestDeleteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.manager(0)()
		c := w.controller
		c.Client = fakeapi.BusyClient(t)
		begun := time.Now()
		err := c.markAndDelete(fakeapi.Quiet(t.Context()), c.pods.Trim(aPod("p", "gone", failed)), orphaned)
		if took := time.Since(begun); err == nil || took > outcome.MaxCompletionDelay {
			t.Errorf("delete ended after %v with %v, want an error after at most %v", took, err, outcome.MaxCompletionDelay)
		}
	})
}

// The API server deletes a pod, and the response is lost. The watch lags, and a new pod has the name.
func TestLostDeleteLeavesTheNextPodAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aPod("p", "gone", running))
		lost := w.LoseResponse("delete", "pods")
		defer w.manager(0)()
		w.Until(quarantine - 1)
		w.Freeze("pods", true)
		w.Until(quarantine)
		w.Put(aPod("p", "gone", running, second))
		w.Until(2*quarantine - 1)
		fakeapi.Want(t, "a response was lost", lost.Load(), true)
		fakeapi.Want(t, "phase of the new pod", w.Pod("p").Status.Phase, running)
		fakeapi.WantEqual(t, "patches and deletes", []int{w.Count("patch pods"), w.Count("delete pods")}, []int{1, 1})
		w.Freeze("pods", false)
		w.Until(time.Hour)
		fakeapi.WantEqual(t, "patches and deletes after another quarantine", []int{w.Count("patch pods"), w.Count("delete pods")}, []int{2, 2})
	})
}

func TestRejectionsOfAllKinds(t *testing.T) {
	for name, rejection := range fakeapi.NewRefusals("Pod", "pods", "p") {
		for _, request := range []string{"get nodes", "patch pods/status", "delete pods"} {
			fakeapi.Bubble(t, request+" "+name, func(t *testing.T) {
				w := newWorld(t, aPod("p", "gone", running))
				w.Break(rejection, request)
				defer w.manager(0)()
				w.Until(10 * time.Minute)
				if n := w.Count(request); n < 5 || n > 40 {
					t.Errorf("%d tries in ten minutes, want a few", n)
				}
				fakeapi.Want(t, "deleted pods", len(w.deletes()), 0)
				w.Break(nil, request)
				w.Until(12 * time.Minute)
				fakeapi.Want(t, "deleted pods after the refusals had ended", len(w.deletes()), 1)
			})
		}
	}
}

// The process died between the mark and the delete.
func TestMarkedBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aPod("p", "gone", running))
		w.Break(errors.New("the leader died here"), "delete pods")
		stop := w.manager(0)
		w.Until(quarantine)
		stop()
		if got := w.Pod("p").Status.Phase; got != failed {
			t.Fatalf("phase = %s, want the pod marked", got)
		}
		w.Break(nil, "delete pods")
		patches := w.Count("patch pods")
		defer w.manager(0)()
		w.Until(3 * quarantine)
		fakeapi.Want(t, "deleted pods", len(w.deletes()), 1)
		fakeapi.Want(t, "marks by the second process", w.Count("patch pods")-patches, 0)
	})
}

func TestEndOfTermWaitsForDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aPod("p", "gone", failed))
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			return false, nil, nil
		})
		stop := w.manager(0)
		w.Until(quarantine)
		stop()
		fakeapi.Want(t, "deleted pods at the end of the term", len(w.deletes()), 1)
	})
}

func TestTerminatingPodsShareSyncsOfTheirNode(t *testing.T) {
	const pods = 30
	for _, tt := range []struct {
		name  string
		nodes []runtime.Object
		syncs int // including the first sync of the term
	}{
		{"on a node in service", []runtime.Object{aNode("n")}, 1},
		{"on a node out of service", []runtime.Object{outOf("n", corev1.ConditionUnknown)}, 5},
		{"on a missing node", nil, 5},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			objects := tt.nodes
			for i := range pods {
				objects = append(objects, aPod(fmt.Sprint("p", i), "n", running, finalized))
			}
			w := newWorld(t, objects...)
			defer w.manager(0)()
			for i := range pods {
				w.Until(time.Duration(i) * 5 * time.Millisecond)
				w.Put(aPod(fmt.Sprint("p", i), "n", running, finalized, terminating))
			}
			w.Until(time.Second)
			if n := fakeapi.Syncs(t, w.Metrics, "orphaned_pods_nodes"); int(n) > tt.syncs {
				t.Errorf("%d syncs of the node while %d pods began to terminate, want at most %d", n, pods, tt.syncs)
			}
		})
	}
}
