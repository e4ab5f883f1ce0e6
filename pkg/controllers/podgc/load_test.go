package podgc

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/pkg/caches"
)

// nodeSyncs returns the number of node syncs of the latest manager.
func (w *world) nodeSyncs() (n int) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "controller_sync_duration_seconds" && label.GetValue() == "orphaned_pods_nodes" {
					n += int(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return n
}

func TestPodsThatTerminateOneByOneShareLooksAtTheirNode(t *testing.T) {
	const pods = 30
	for _, tt := range []struct {
		name  string
		nodes []runtime.Object
		looks int // including the first sync of the term
	}{
		{"on a node in service: none", []runtime.Object{aNode("n")}, 1},
		{"on a node out of service", []runtime.Object{outOf("n", corev1.ConditionUnknown)}, 5},
		{"on a missing node", nil, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := tt.nodes
				for i := range pods {
					objects = append(objects, aPod(fmt.Sprint("p", i), "n", running, finalized))
				}
				w := newWorld(t, objects...)
				_, stop := w.manager(0)
				defer stop()
				for i := range pods {
					w.until(time.Duration(i) * 5 * time.Millisecond)
					w.Put(aPod(fmt.Sprint("p", i), "n", running, finalized, terminating))
				}
				w.until(time.Second)
				if n := w.nodeSyncs(); n > tt.looks {
					t.Errorf("%d looks at the node while %d pods began to terminate, want at most %d", n, pods, tt.looks)
				}
			})
		})
	}
}

func TestADeletedPodCostsTheSameWhateverIsOnItsNode(t *testing.T) {
	for _, others := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			var objects []runtime.Object
			for i := range others {
				objects = append(objects, aPod(fmt.Sprint("p", i), "n", running))
			}
			w := newWorld(t, append(objects, aNode("n"))...)
			c, stop := w.manager(0)
			stop()
			gone := &caches.Pod{NodeName: "n"}
			if n := testing.AllocsPerRun(100, func() { c.podDeleted(gone) }); n != 0 {
				t.Errorf("%v allocations with %d pods on the node, want none: a list of them is one", n, others)
			}
		})
	}
}
