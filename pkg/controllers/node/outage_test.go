package node

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"minikcm/internal/fakeapi"
)

// The variable everything lists the requests that fail during an outage.
var everything = []string{
	"get nodes", "get leases", "list leases", "list nodes", "update nodes/status", "patch nodes", "patch pods/status",
}

// An outage of any kind and length condemns no live node, and a node that dies before or during the outage is
// found afterwards.
func TestOutages(t *testing.T) {
	reads := []string{"get nodes", "get leases", "list leases", "list nodes"}
	for _, kind := range []struct {
		name   string
		broken []string
		frozen bool // the watch of Leases
	}{
		{"all requests fail", everything, false},
		{"all requests fail, frozen watch", everything, true},
		{"reads fail", reads, false},
		{"only kubelets are cut off for less than a grace period", nil, false},
	} {
		for _, grace := range []time.Duration{20 * time.Second, 50 * time.Second} {
			for _, outage := range []time.Duration{grace / 5, grace / 2, grace * 4 / 5, 2 * grace, 10 * grace} {
				// lates are times from the end of the outage to the first renewal.
				lates := []time.Duration{time.Second, 7 * time.Second}
				if outage > grace {
					lates[1] = grace * 3 / 5
				}
				for _, late := range lates {
					if len(kind.broken) < len(reads) && outage+late+leaseInterval > grace {
						continue // silence of kubelets alone is no outage
					}
					t.Run(fmt.Sprintf("%s for %v, grace %v, renewals %v late", kind.name, outage, grace, late), func(t *testing.T) {
						objects, live, dying := cluster(6, 1)
						cfg := defaults()
						cfg.MonitorGracePeriod = grace
						inBubble(t, cfg, objects, func(b *bench) {
							b.term()
							b.renewFor(2*grace, slices.Concat(live, dying)...)
							b.Break(errOutage, kind.broken...)
							b.Freeze("leases", kind.frozen)
							b.pass(outage)
							b.Break(nil, everything...)
							b.pass(late)
							b.wantReady("True", live...)
							b.Freeze("leases", false)
							b.renewFor(2*grace, live...)
							b.wantReady("True", live...)
							b.wantReady("Unknown", dying...)
							if got := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedOutage)); got == 0 && outage > grace {
								t.Error("no silent node was suspended: the test has not reached its subject")
							}
						})
					})
				}
			}
		}
	}
}

// Kubelets and the controller get no response, while the leader renews its Lease.
func TestLeasesOfLeadersProveNothing(t *testing.T) {
	inCluster(t, 5, 0, nil, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(20*time.Second, live...)
		b.Break(errOutage, everything...)
		leader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "leader"}}
		for range 120 {
			b.controller.api.observeLease(leader)
			b.pass(time.Second / 2)
		}
		b.Break(nil, everything...)
		b.pass(8 * time.Second)
		b.wantReady("True", live...)
	})
}

// A load balancer, not the API server, returns 404. The controller tries again.
func TestNotFoundOfALoadBalancer(t *testing.T) {
	for _, request := range []string{"get leases", "get nodes", "patch pods/status"} {
		t.Run(request, func(t *testing.T) {
			inCluster(t, 3, 1, []runtime.Object{aPod("pod", "dying0")}, func(b *bench, live, dying []string) {
				b.term()
				b.renewFor(49*time.Second, live...)
				b.Break(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", coordinationv1.Resource("leases"), "dying0", "404 page not found", 0, true), request)
				b.pass(5 * time.Second)
				if request != "patch pods/status" {
					b.wantReady("True", dying...)
					if testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedReadFailed)) == 0 {
						t.Error("the failed read was not counted")
					}
				}
				b.Break(nil, request)
				b.renewFor(10*time.Second, live...)
				b.wantReady("Unknown", dying...)
				b.wantPods("False", "pod")
			})
		})
	}
}

func TestOutageDuringStandbyKeepsNodesReady(t *testing.T) {
	inCluster(t, 10, 0, nil, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(20*time.Second, live...)
		b.endTerm() // the lease was lost
		b.pass(70 * time.Second)
		b.term()
		b.pass(45 * time.Second)
		b.wantReady("True", live...)
	})
}

func TestStallOfTheProcessIsNotSilence(t *testing.T) {
	inCluster(t, 3, 0, nil, func(b *bench, live, _ []string) {
		b.term()
		b.renew(live...)
		b.pass(40 * time.Second)
		b.renew("live1")
		b.pass(5 * time.Second)
		api := b.controller.api
		api.lock.Lock()
		api.lastTick = time.Now().Add(-30 * time.Second) // no tick for 30 s
		api.lock.Unlock()
		fakeapi.Want(t, "silent nodes are suspended between a stall and the next tick", api.isSuspended(true, time.Now()), true)
		b.pass(time.Second)
		for _, name := range live {
			r, _ := b.controller.health.get(name, "")
			if got := time.Since(r.heartbeat.seen); got > time.Second {
				t.Errorf("%s counts as silent for %v after a stall, want a new grace period", name, got)
			}
		}
	})
}

func TestNewTermDoesNotTrustAStaleNodeCache(t *testing.T) {
	old := metav1.NewTime(epoch.Add(-time.Hour))
	dead := aNode("dead", "zone", "Unknown", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: noSchedule, TimeAdded: &old}, {Key: corev1.TaintNodeUnreachable, Effect: noExec, TimeAdded: &old}}
	})
	objects := []runtime.Object{dead, aNode("back", "zone", "Unknown"), aLease("back", epoch), aPod("pod", "back")}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.Freeze("nodes", true)
		b.post("back", "True") // the cache still shows a cluster without a Ready node
		b.term()
		b.pass(10 * time.Second)
		b.wantTaints("dead", silentTaints...) // although every node seems to be down
		b.wantPods("True", "pod")
		b.Freeze("nodes", false)
		b.pass(5 * time.Second)
		if got := b.Count("patch nodes"); got > 1 {
			t.Errorf("%d patches, want at most the one of the node that came back", got)
		}
		b.wantPods("True", "pod")
		fakeapi.Want(t, "the cache is confirmed", b.controller.confirmed.Load(), true)
	})
}

// The comparison at the start of a term may take long, on the very API server that is slow.
func TestNoNoExecuteBeforeTheNodeCacheIsConfirmed(t *testing.T) {
	objects := []runtime.Object{aNode("other", "zone", "True"), aLease("other", epoch), aNode("down", "zone", "False"), aLease("down", epoch)}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.Break(errOutage, "list nodes")
		b.term()
		b.renewFor(10*time.Second, "other", "down")
		b.wantTaints("down", "not-ready:NoSchedule")
		b.Break(nil, "list nodes")
		b.renewFor(20*time.Second, "other", "down")
		b.wantTaints("down", notReadyTaints...)
	})
}

// Nodes that cannot be written, because a webhook or a broken object is in the way, are found dead late or
// never. Other nodes are not affected.
func TestUnwritableNodesDelayNoOthers(t *testing.T) {
	objects, live, dying := cluster(20, 5)
	cfg := defaults()
	cfg.EvictionRate = 1
	inBubble(t, cfg, objects, func(b *bench) {
		for _, name := range dying[:3] {
			b.Break(errOutage, "patch nodes "+name)
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
		fakeapi.Want(t, "tainted nodes of those that can be written", b.tainted(unreachableNoExecute, []string{"dying3", "dying4"}), 2)
		fakeapi.Want(t, "suppressed decisions", testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedOutage)), suppressed)
	})
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
func TestSilentNodesDelayNoLiveNode(t *testing.T) {
	inCluster(t, 5, 300, nil, func(b *bench, live, dying []string) {
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
func TestNodeWithSpentExtraTimeBecomesUnknown(t *testing.T) {
	inCluster(t, 5, 1, nil, func(b *bench, live, _ []string) {
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

// A stale node cache is no outage of the API server, and a new term restarts no grace period. A watch that is frozen at
// a take-over may stay frozen for two minutes, so lists of nodes back off.
func TestStaleNodeCacheIsNoOutage(t *testing.T) {
	inCluster(t, 2, 1, nil, func(b *bench, live, dying []string) {
		b.renewFor(30*time.Second, live...) // as a standby
		b.Freeze("nodes", true)
		b.edit("live0", func(n *corev1.Node) { n.Labels["new"] = "label" })
		before := b.Count("list nodes")
		b.term()
		b.renewFor(30*time.Second, live...)
		b.wantReady("Unknown", dying...)
		b.renewFor(90*time.Second, live...)
		if got := b.Count("list nodes") - before; got > 20 {
			t.Errorf("%d lists of nodes in two minutes, want at most 20", got)
		}
	})
}

func TestNodeRecreatedWithinASecond(t *testing.T) {
	inCluster(t, 3, 2, []runtime.Object{aPod("pod", "dying0")}, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(55*time.Second, live...)
		b.wantReady("Unknown", "dying0", "dying1")
		fakeapi.NewEvents(b.events)
		fakeapi.NoError(t, b.CoreV1().Nodes().Delete(b.T.Context(), "dying0", metav1.DeleteOptions{}))
		b.create(aNode("dying0", "zone", "True", func(n *corev1.Node) { n.UID = "another" }))
		b.pass(time.Millisecond) // the streams of nodes and pods are not ordered
		b.create(aPod("new", "dying0"))
		b.renewFor(45*time.Second, live...)
		b.wantReady("True", "dying0")
		b.wantTaints("dying0")
		b.wantPods("True", "new")
		b.renewFor(10*time.Second, live...)
		b.wantReady("Unknown", "dying0")
		const registered = "Normal RegisteredNode Node dying0 event: Registered Node dying0 in Controller"
		fakeapi.Want(t, "registrations", len(slices.DeleteFunc(fakeapi.NewEvents(b.events), func(e string) bool { return e != registered })), 1)
	})
}

// The API server rejects every patch of nodes for a while. The controller retries at a limited rate.
func TestNodePatchesRejected(t *testing.T) {
	for name, rejection := range fakeapi.NewRefusals("Node", "nodes", "dying0") {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, 1, nil, func(b *bench, live, _ []string) {
				b.Break(rejection, "patch nodes")
				b.term()
				b.renewFor(51*time.Second, live...)
				before := b.Count("patch nodes")
				b.renewFor(time.Minute, live...)
				if got := b.Count("patch nodes") - before; got == 0 || got > 60 {
					t.Errorf("%d patches in a minute, want 1 to 60", got)
				}
				b.Break(nil, "patch nodes")
				b.renewFor(20*time.Second, live...)
				b.wantTaints("dying0", silentTaints...)
				b.wantReady("True", live...)
			})
		})
	}
}

func TestGaugesAreResetAfterTheTerm(t *testing.T) {
	inCluster(t, 3, 1, nil, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(55*time.Second, live...)
		m := b.controller.metrics
		zone := "region:\x00:zone"
		fakeapi.Want(t, "health", testutil.ToFloat64(m.zoneHealth.WithLabelValues(zone)), 75)
		fakeapi.Want(t, "size", testutil.ToFloat64(m.zoneSize.WithLabelValues(zone)), 4)
		fakeapi.Want(t, "unhealthy nodes", testutil.ToFloat64(m.zoneUnhealthy.WithLabelValues(zone)), 1)
		fakeapi.Want(t, "state gauge of Normal", testutil.ToFloat64(m.zoneState.WithLabelValues(zone, "Normal")), 1)
		m.suspended.Set(1)
		b.endTerm()
		for _, gauge := range []*prometheus.GaugeVec{m.zoneHealth, m.zoneSize, m.zoneUnhealthy, m.zoneState, m.pending} {
			fakeapi.Want(t, "series outside a term", testutil.CollectAndCount(gauge), 0)
		}
		fakeapi.Want(t, "suspended outside a term", testutil.ToFloat64(m.suspended), 0)
		fakeapi.Want(t, "evictions_total, which a term does not reset", testutil.ToFloat64(m.evictions.WithLabelValues("region:\x00:zone")), 1)
	})
}

// The next process adds no taint again and restarts no line. Beside nodes without change it writes nothing.
func TestStandbyContinuesRateOfTaints(t *testing.T) {
	inCluster(t, 20, 4, []runtime.Object{aPod("a", "dying0"), aPod("b", "dying3")}, func(b *bench, live, dying []string) {
		b.term()
		b.renewFor(62*time.Second, live...)
		fakeapi.Want(t, "tainted nodes", b.tainted(unreachableNoExecute, dying), 2)
		times := map[string]time.Time{}
		for _, name := range dying {
			times[name] = b.taintedAt(name, corev1.TaintNodeUnreachable)
		}
		b.endTerm()
		b.pass(3 * time.Second)
		b.term()
		b.renewFor(30*time.Second, live...)
		fakeapi.Want(t, "tainted nodes 30 s into the new term", b.tainted(unreachableNoExecute, dying), 4)
		for name, at := range times {
			if !at.IsZero() {
				fakeapi.WantEqual(t, "TimeAdded of "+name, b.taintedAt(name, corev1.TaintNodeUnreachable), at)
			}
		}
		ours := func() int { return b.Count("patch") + b.Count("update nodes/status") }
		writes, reads := ours(), b.Count("get nodes")
		b.endTerm()
		b.term()
		b.renewFor(2*time.Minute, live...)
		fakeapi.Want(t, "writes after a restart beside nodes without change", ours()-writes, 0)
		fakeapi.Want(t, "live reads of nodes after a restart", b.Count("get nodes")-reads, 0)
	})
}
