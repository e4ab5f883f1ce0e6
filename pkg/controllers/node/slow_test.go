package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Nodes that cannot be written, because a webhook or a broken object is in the way, are found dead late or
// never. Other nodes are not affected.
func TestNodesThatCannotBeWrittenCostOthersNoTime(t *testing.T) {
	for _, bad := range []int{0, 3} {
		t.Run(fmt.Sprint(bad, " of them"), func(t *testing.T) {
			objects, live, dying := cluster(20, 5)
			cfg := defaults()
			cfg.EvictionRate = 1
			inBubble(t, cfg, objects, func(b *bench) {
				for i := range bad {
					b.Break(errOutage, "patch nodes "+dying[i])
				}
				b.term()
				b.renewFor(2*time.Minute, append(live, "dying4")...)
				b.wantReady("Unknown", dying[:4]...)
				suppressed := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedOutage))
				for range 11 {
					b.renew(live...)
					b.pass(5 * time.Second)
				}
				b.wantReady("Unknown", "dying4")
				b.renewFor(10*time.Second, live...)
				if got := b.tainted(unreachableNoExecute, []string{"dying3", "dying4"}); got != 2 {
					t.Errorf("%d of the 2 dead nodes that can be written are tainted", got)
				}
				if got := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedOutage)); got != suppressed {
					t.Errorf("%v verdicts were not passed because of blindness", got-suppressed)
				}
			})
		})
	}
}

// slowClient is a client whose status writes of nodes take 10 s.
type slowClient struct{ kubernetes.Interface }

func (s slowClient) CoreV1() typedcorev1.CoreV1Interface { return slowCore{s.Interface.CoreV1()} }

type slowCore struct{ typedcorev1.CoreV1Interface }

func (s slowCore) Nodes() typedcorev1.NodeInterface { return slowNodes{s.CoreV1Interface.Nodes()} }

type slowNodes struct{ typedcorev1.NodeInterface }

func (s slowNodes) UpdateStatus(ctx context.Context, node *corev1.Node, opts metav1.UpdateOptions) (*corev1.Node, error) {
	time.Sleep(10 * time.Second)
	return s.NodeInterface.UpdateStatus(ctx, node, opts)
}

// A zone dies while a webhook delays each status write. Some nodes are processed each second.
func TestDeadNodesHoldUpNoLivingOne(t *testing.T) {
	objects, live, dying := cluster(5, 300)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.Client = slowClient{b.Clientset}
		b.term()
		b.renewFor(70*time.Second, live...)
		b.edit("live0", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		b.renewFor(time.Minute, live...)
		b.wantTaints("live0", "unschedulable:NoSchedule")
		b.renewFor(time.Minute, live...)
		b.wantReady("Unknown", dying...)
	})
}

// An API server that fails now and then cannot keep a dead node alive. After all extra time is used up,
// only a live read of the Lease shows that the node is alive.
func TestNodeThatHasBeenGivenAllTimeIsFoundWhileBlind(t *testing.T) {
	objects, live, _ := cluster(5, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		for found := 0; found < 300; found += 5 {
			b.renew(live...)
			b.outage() // until the next renewal: almost always
			b.pass(5 * time.Second)
			if readiness(b.Node("dying0")) == "Unknown" {
				if found < 190 {
					t.Errorf("found after %d s, want no sooner than after a grace and three on top", found)
				}
				return
			}
		}
		t.Error("the dead node was not found in 300 s")
	})
}
