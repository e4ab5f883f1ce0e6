package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"minikcm/pkg/caches"
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
				if got := b.withStatus("Unknown", dying); got != 4 {
					t.Fatalf("%d nodes Unknown, want 4", got)
				}
				suppressed := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedOutage))
				for range 11 {
					b.renew(live...)
					b.pass(5 * time.Second)
				}
				if got := readiness(b.Node("dying4")); got != "Unknown" {
					t.Errorf("Ready = %s 55 s after the last renewal, want Unknown", got)
				}
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

// slowWrites holds the durations of writes of nodes.
type slowWrites struct {
	status  time.Duration
	refusal time.Duration // of each patch; 0 accepts the patch at once
}

// slowClient is a client whose writes of nodes take some time.
type slowClient struct {
	kubernetes.Interface
	slowWrites
}

func (s slowClient) CoreV1() typedcorev1.CoreV1Interface {
	return slowCore{s.Interface.CoreV1(), s.slowWrites}
}

type slowCore struct {
	typedcorev1.CoreV1Interface
	slowWrites
}

func (s slowCore) Nodes() typedcorev1.NodeInterface {
	return slowNodes{s.CoreV1Interface.Nodes(), s.slowWrites}
}

type slowNodes struct {
	typedcorev1.NodeInterface
	slowWrites
}

func (s slowNodes) UpdateStatus(ctx context.Context, node *corev1.Node, opts metav1.UpdateOptions) (*corev1.Node, error) {
	time.Sleep(s.status)
	return s.NodeInterface.UpdateStatus(ctx, node, opts)
}

func (s slowNodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.Node, error) {
	if s.refusal > 0 {
		time.Sleep(s.refusal)
		return nil, apierrors.NewForbidden(corev1.Resource("nodes"), name, errors.New("a webhook says no"))
	}
	return s.NodeInterface.Patch(ctx, name, kind, data, opts, sub...)
}

// A zone dies while a webhook delays each status write. Some nodes are processed each second.
func TestDeadNodesHoldUpNoLivingOne(t *testing.T) {
	objects, live, dying := cluster(5, 300)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.deps.Client = slowClient{b.Clientset, slowWrites{status: 10 * time.Second}}
		b.term()
		b.renewFor(70*time.Second, live...)
		b.edit("live0", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		b.renewFor(time.Minute, live...)
		if !hasTaint(b.Node("live0"), "unschedulable:NoSchedule") {
			t.Error("a node that was cordoned has not been tainted within a minute")
		}
		b.renewFor(time.Minute, live...)
		if got := b.withStatus("Unknown", dying); got != len(dying) {
			t.Errorf("%d of %d dead nodes Unknown", got, len(dying))
		}
	})
}

// A zone dies while a webhook delays and then rejects each patch. Retried nodes do not
// starve nodes that wait for the first attempt.
func TestDeadNodesThatCannotBeTaintedStarveNoOther(t *testing.T) {
	objects, live, dying := cluster(5, 200)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.deps.Client = slowClient{b.Clientset, slowWrites{refusal: 10 * time.Second}}
		b.term()
		b.renewFor(3*time.Minute, live...)
		if got := b.withStatus("Unknown", dying); got != len(dying) {
			t.Errorf("%d of %d dead nodes Unknown", got, len(dying))
		}
	})
}

// A suspension that comes and goes between two ticks is seen all the same.
func TestGaugeShowsShortSuspensions(t *testing.T) {
	objects, live, _ := cluster(5, 0)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(5*time.Second, live...)
		gauge := b.controller.metrics.suspended
		b.pass(500 * time.Millisecond)
		b.outage()
		b.renew(live...) // ends it
		b.pass(time.Second)
		if got := testutil.ToFloat64(gauge); got != 1 {
			t.Errorf("blind = %v at the tick after a short blindness, want 1", got)
		}
		b.pass(time.Second)
		if got := testutil.ToFloat64(gauge); got != 0 {
			t.Errorf("blind = %v a tick later, want 0", got)
		}
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

func TestPodsThatHaveComeToANode(t *testing.T) {
	pod := func(uid types.UID, node string) *caches.Pod {
		p := aPod("pod", node)
		p.UID = uid
		return caches.TrimPod(p)
	}
	for _, tt := range []struct {
		name   string
		before *caches.Pod
		now    *caches.Pod
		want   bool
	}{
		{"new, on a node", nil, pod("a", "node"), true},
		{"new, on none", nil, pod("a", ""), false},
		{"bound", pod("a", ""), pod("a", "node"), true},
		{"as before", pod("a", "node"), pod("a", "node"), false},
		{"another of its name on the same node, made while the watch was away", pod("a", "node"), pod("b", "node"), true},
	} {
		if got := isNewOnNode(tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
