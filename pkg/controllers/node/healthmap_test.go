package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// Most deleted nodes are silent, so deletions and judgements coincide.
func TestNodeDeletedWhileItIsJudgedLeavesNoRecord(t *testing.T) {
	objects, live, _ := cluster(2, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		deleted := false
		b.PrependReactor("get", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if name := action.(clienttesting.GetAction).GetName(); name == "dying0" && !deleted {
				deleted = true
				if err := b.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", name); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second) // until the handler has run
			}
			return false, nil, nil
		})
		b.term()
		b.renewFor(time.Minute, live...)
		if !deleted {
			t.Fatal("the Lease of the silent node was never read")
		}
		if _, ok := b.controller.health.of("dying0", ""); ok {
			t.Error("the health map contains the deleted node")
		}
	})
}
