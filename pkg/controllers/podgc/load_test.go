package podgc

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
)

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
					w.Until(time.Duration(i) * 5 * time.Millisecond)
					w.Put(aPod(fmt.Sprint("p", i), "n", running, finalized, terminating))
				}
				w.Until(time.Second)
				if n := fakeapi.Syncs(t, w.Metrics, "orphaned_pods_nodes"); int(n) > tt.looks {
					t.Errorf("%d looks at the node while %d pods began to terminate, want at most %d", n, pods, tt.looks)
				}
			})
		})
	}
}
