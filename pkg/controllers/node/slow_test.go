package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
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

// slowLists are lists of Leases that take some time and then end as told; many nodes always want one.
type slowLists struct {
	leaseLists
	lock  sync.Mutex
	takes time.Duration
	err   error
	made  int
}

func newSlowLists(takes time.Duration, err error) *slowLists {
	s := &slowLists{takes: takes, err: err}
	s.now, s.many = time.Now, func(time.Time) bool { return true }
	s.list = func(context.Context) error {
		s.lock.Lock()
		s.made++
		s.lock.Unlock()
		time.Sleep(s.takes)
		return s.err
	}
	return s
}

func (s *slowLists) count() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.made
}

func TestOneListServesAllWhoWaitForIt(t *testing.T) {
	for _, takes := range []time.Duration{100 * time.Millisecond, 2500 * time.Millisecond, 20 * time.Second} {
		t.Run(fmt.Sprint("it takes ", takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := newSlowLists(takes, nil)
				due := time.Now().Add(-time.Second)
				var workers sync.WaitGroup
				for range 8 {
					workers.Go(func() {
						if ok, err := lists.covers(t.Context(), due); !ok || err != nil {
							t.Errorf("covered %v, error %v", ok, err)
						}
					})
				}
				workers.Wait()
				time.Sleep(time.Second)
				if ok, err := lists.covers(t.Context(), due); !ok || err != nil || lists.count() != 1 {
					t.Errorf("covered %v, error %v a second after it was read, %d lists; want one for all", ok, err, lists.count())
				}
				time.Sleep(listAge)
				if _, err := lists.covers(t.Context(), due); err != nil || lists.count() != 2 {
					t.Errorf("%d lists, error %v; want another when the first is old", lists.count(), err)
				}
			})
		})
	}
}

func TestListFromBeforeANodeWasDueProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := newSlowLists(3*time.Second, nil)
		var workers sync.WaitGroup
		workers.Go(func() { _, _ = lists.covers(t.Context(), time.Now().Add(-time.Second)) })
		time.Sleep(2 * time.Second)
		if ok, err := lists.covers(t.Context(), time.Now().Add(-time.Second)); !ok || err != nil || lists.count() != 2 {
			t.Errorf("covered %v, error %v, %d lists; want one that was asked for after the node was due", ok, err, lists.count())
		}
		workers.Wait()
	})
}

func TestFailedListLeavesEachNodeToItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := newSlowLists(5*time.Second, errors.New("too slow"))
		due := time.Now().Add(-time.Second)
		for range 3 {
			if ok, err := lists.covers(t.Context(), due); ok || err != nil {
				t.Errorf("covered %v, error %v by a list that failed", ok, err)
			}
		}
		if lists.count() != 1 {
			t.Errorf("%d lists, want no second one at once", lists.count())
		}
		time.Sleep(minListRetry)
		if _, _ = lists.covers(t.Context(), due); lists.count() != 2 {
			t.Errorf("%d lists, want another after %v", lists.count(), minListRetry)
		}
	})
}

func TestListThatTakesTheWatchsPlaceIsNotAskedForAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := newSlowLists(0, errors.New("refused"))
		for range 60 {
			_ = lists.renew(t.Context())
			time.Sleep(time.Second)
		}
		if got := lists.count(); got != 9 {
			t.Errorf("%d lists in a minute, want them after 0, 1, 3, 7, 15, 25 s and so on", got)
		}
	})
}

func TestWaitForAListEndsWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := newSlowLists(20*time.Second, nil)
		var workers sync.WaitGroup
		workers.Go(func() { _, _ = lists.covers(t.Context(), time.Now().Add(-time.Second)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ok, err := lists.covers(ctx, time.Now().Add(-time.Second)); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("covered %v, error %v; want the context's", ok, err)
		}
		workers.Wait()
	})
}

// Nodes that cannot be written, because a webhook or a broken object is in the way, are found dead late or never. That is theirs alone.
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
				suppressed := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedBlind))
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
				if got := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedBlind)); got != suppressed {
					t.Errorf("%v verdicts were not passed because of blindness", got-suppressed)
				}
			})
		})
	}
}

// slowWrites are how long writes of nodes take.
type slowWrites struct {
	status  time.Duration
	refusal time.Duration // of each patch; 0: it is accepted at once
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

// A zone dies while a webhook holds up each write of a status: the nodes of it are looked at some a second.
func TestDeadNodesHoldUpNoLivingOne(t *testing.T) {
	objects, live, dying := cluster(5, 300)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.writer.client = slowClient{b.Clientset, slowWrites{status: 10 * time.Second}}
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

// A zone dies while a webhook holds up each patch and then refuses it: those that are tried again do not starve those that wait for their first try.
func TestDeadNodesThatCannotBeTaintedStarveNoOther(t *testing.T) {
	objects, live, dying := cluster(5, 200)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.writer.client = slowClient{b.Clientset, slowWrites{refusal: 10 * time.Second}}
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
		gauge := b.controller.metrics.suspended.WithLabelValues(string(causeBlind))
		b.pass(500 * time.Millisecond)
		b.controller.silence.visibility.probeFailed(errOutage)
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

// An API server that fails now and then cannot keep a dead node alive: once it has been given all the time there is to give, only a live
// read of its Lease speaks for it.
func TestNodeThatHasBeenGivenAllTimeIsFoundWhileBlind(t *testing.T) {
	objects, live, _ := cluster(5, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		for found := 0; found < 300; found += 5 {
			b.renew(live...)
			b.controller.silence.visibility.probeFailed(errOutage) // until the next renewal: almost always
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
		if got := hasCome(tt.before, tt.now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The kubelet posts Ready=True right after our Unknown, and both are seen before the answer to our write.
func TestAnswerToOurWriteIsNotNewerThanTheKubelet(t *testing.T) {
	for _, tt := range []struct {
		name, seen string
		want       corev1.ConditionStatus
	}{
		{"what was seen is older", "9", "Unknown"}, {"what was seen is our write", "10", "Unknown"}, {"what was seen is newer", "11", "True"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newHealthMap()
			o.node(aNode("n", "zone", "True", func(n *corev1.Node) { n.ResourceVersion = tt.seen }), time.Time{}, day)
			o.change("n", types.UID("uid-n"), func(r *nodeHealth) { r.setUnknown("10", day) })
			if r, _ := o.of("n", ""); r.ready != tt.want {
				t.Errorf("Ready = %s, want %s", r.ready, tt.want)
			}
		})
	}
}

// Verdicts on many nodes are passed at the same moment; each is known before its zone counts it.
func TestNodeFoundDeadIsLaggingUntilItsZoneCountsIt(t *testing.T) {
	objects, _, _ := cluster(2, 0)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.controller.health.change("live0", "", func(r *nodeHealth) { r.setUnknown("9", time.Now()) })
		lagging := b.controller.lagging(time.Now())
		if !lagging("live0") || lagging("live1") {
			t.Errorf("lagging: the one found dead %v, the other %v", lagging("live0"), lagging("live1"))
		}
	})
}

// A list of Leases is asked for, the network goes away for twenty seconds, and then the list arrives: as old as the outage is long.
func TestListThatCrossesAnOutageCondemnsNobody(t *testing.T) {
	objects, live, _ := cluster(10, 0)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renew(live...)
		b.pass(50 * time.Second) // in a moment all are due and wait for the list
		lists := b.controller.silence.leases.lists
		lists.lock.Lock()
		lists.start(time.Now().Add(time.Second))
		lists.lock.Unlock()
		b.pass(time.Second)
		b.Break(errOutage, everything...)
		b.controller.silence.visibility.probeFailed(errOutage)
		b.pass(20 * time.Second)
		b.Break(nil, everything...)
		if err := lists.finish(b.controller.silence.leases.list(b.t.Context())); err != nil {
			t.Fatal(err)
		}
		b.pass(time.Second)
		if got := b.withStatus("True", live); got != 10 {
			t.Errorf("%d of 10 nodes Ready right after an outage, want all", got)
		}
	})
}
