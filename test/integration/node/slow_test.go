package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// What is slow, or refuses one object, is not broken: the dead are found all the same.

// A webhook that is asked about the status of nodes hangs until the API server goes on without it. It is the write of the verdict that
// waits; how soon evidence comes says nothing about it.
func TestWebhookThatHangsDelaysAVerdictByItsOwnTime(t *testing.T) {
	for _, tt := range []struct {
		name    string
		grace   time.Duration
		timeout int32 // of the webhook, in seconds; more than a probe may take
		within  time.Duration
		long    bool
	}{
		{"scaled", 4 * time.Second, 2, patience, false},
		{"20 s of grace, 6 s of webhook", 20 * time.Second, 6, 28 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long && !controlplane.Long() {
				t.Skip("only with -long")
			}
			w := newWorld(t)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"UPDATE"}, Resource: "nodes/status", TimeoutSeconds: tt.timeout, Ignore: true})
			f := w.newFleet("a", 5)
			cfg := scaled()
			cfg.MonitorGracePeriod = tt.grace
			start(t, cfg, false)
			for _, name := range f.names {
				w.settled(name, 0)
			}
			hook.Hang()
			f.silence(true, f.names[0])
			begin := time.Now()
			w.onlyUnknown(f.names[0])
			took := time.Since(begin)
			t.Logf("silent node Unknown after %v", took)
			if controlplane.Long() && took > tt.within { // on a busy machine it says nothing
				t.Errorf("Unknown after %v, want at most %v", took, tt.within)
			}
			w.taints(f.names[0], corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
			if hook.Requests() == 0 {
				t.Error("the webhook was not asked: the test has not reached what it is about")
			}
		})
	}
}

// A look at the Lease and at the node takes longer than a probe may: our requests wait in a queue of the API server, those of kubelets, which
// have a priority of their own, do not. The answers prove as much as those that come at once.
func TestReadsThatAreSlowDelayAVerdictByTheirOwnTime(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("a", 5)
	proxy := faults.New(t, controllerConfig())
	rule := proxy.Inject(faults.On("get", "leases,nodes"), faults.DelayAnswer(2500*time.Millisecond))
	standby(t, scaled(), false, proxy.Config(), watcherConfig()).beginTerm()
	for _, name := range f.names {
		w.settled(name, 0)
	}
	f.silence(true, f.names[0])
	w.onlyUnknown(f.names[0])
	must(t, w.othersReady(f.names[1:]))
	if rule.Hits() == 0 {
		t.Error("nothing was read: the test has not reached what it is about")
	}
}

// Half of forty nodes die, so their Leases are asked for in one list. It takes longer than a probe may and than a list serves,
// or it is refused every time.
func TestListOfLeasesThatIsSlowOrRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault faults.Fault
	}{
		{"slow", faults.DelayAnswer(2500 * time.Millisecond)},
		{"refused", faults.Refuse(500)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.newFleet("a", 40)
			proxy := faults.New(t, controllerConfig())
			rule := proxy.Inject(faults.On("list", "leases"), tt.fault)
			cfg := scaled()
			cfg.MonitorGracePeriod = 4 * time.Second
			standby(t, cfg, false, proxy.Config(), watcherConfig()).beginTerm()
			for _, name := range f.names {
				w.settled(name, 0)
			}
			f.silence(true, f.names[:20]...)
			controlplane.Eventually(t, patience, func(ctx context.Context) error {
				nodes, err := w.list(ctx)
				if err != nil {
					return err
				}
				if dead := len(unknown(nodes)); dead != 20 {
					return fmt.Errorf("%d nodes are Unknown, want 20", dead)
				}
				return nil
			})
			must(t, w.othersReady(f.names[20:]))
			if rule.Hits() == 0 {
				t.Error("no list was asked for: the test has not reached what it is about")
			}
		})
	}
}

// The controller may send 20 requests a second, as upstream's may by default. While the pods of one dead node use them up, another dead node
// is found, and nobody takes our own limit for an API server that does not answer.
func TestRateLimitIsNotBlindness(t *testing.T) {
	w, ns := newWorld(t), cluster.Namespace(t)
	f := w.newFleet("a", 5)
	pods := w.pods(ns, f.names[0], 200)
	cfg := controllerConfig()
	cfg.QPS, cfg.Burst = 20, 30
	running := standby(t, scaled(), false, cfg, watcherConfig()).beginTerm()
	for _, name := range f.names {
		w.settled(name, 0)
	}
	f.silence(true, f.names[0])
	w.onlyUnknown(f.names[0])
	f.silence(true, f.names[1])
	var left int // pods of the first node that have not been marked when the second is found
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		second, err := w.client.CoreV1().Nodes().Get(ctx, f.names[1], metav1.GetOptions{})
		if err != nil {
			return err
		}
		if controlplane.NodeReady(second) != corev1.ConditionUnknown {
			return errors.New("the second dead node is not Unknown")
		}
		if left == 0 {
			list, err := w.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if caches.TrimPod(&list.Items[i]).Ready.Status != corev1.ConditionFalse {
					left++
				}
			}
		}
		return nil
	})
	w.notReady(ns, pods...)
	t.Logf("%d of %d pods were waiting to be marked when the second node was found", left, len(pods))
	for _, cause := range []string{"api_unreachable", "blind_credit"} {
		if n := running.Metric(t, "node_collector_suppressed_verdicts_total", cause); n != 0 {
			t.Errorf("%v verdicts were not passed because of %s", n, cause)
		}
	}
}

// One dead node cannot be patched: a webhook of somebody's refuses it. That is no reason to give every other node more time.
func TestNodeThatCannotBePatchedBlindsNobody(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("a", 6)
	bad, dead := f.names[1], f.names[0]
	proxy := faults.New(t, controllerConfig())
	cfg := scaled()
	cfg.EvictionRate = 10
	standby(t, cfg, false, proxy.Config(), watcherConfig()).beginTerm()
	for _, name := range f.names {
		w.settled(name, 0)
	}
	refusal := faults.On("patch", "nodes")
	refusal.Name = bad
	rule := proxy.Inject(refusal, faults.Refuse(500))
	f.silence(true, bad)
	w.onlyUnknown(bad)
	f.silence(true, dead)
	begin := time.Now()
	w.taints(dead, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	t.Logf("silent node tainted after %v; the exact time is the matter of a test in fake time", time.Since(begin))
	if rule.Hits() == 0 {
		t.Error("no patch was refused: the test has not reached what it is about")
	}
	rule.Remove()
	w.taints(bad, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
}

// Kubelets renew less often than twice in a grace period, so at any time some have used up half of theirs. Half of their zone has died: a
// few more and it would be disrupted. They are not dying, and the dead ones must leave.
func TestZoneOfKubeletsThatRenewSeldom(t *testing.T) {
	w := newWorld(t)
	f := w.newFleetRenewing("a", 20, 12*time.Second)
	cfg := scaled()
	cfg.MonitorGracePeriod, cfg.EvictionRate = 20*time.Second, 1
	cfg.Workers = 1 // one verdict after the other, so that the first to be tainted looks ahead to the others
	start(t, cfg, false)
	f.silence(true, f.names[:10]...)
	controlplane.Eventually(t, 2*patience, func(ctx context.Context) error {
		nodes, err := w.list(ctx)
		if err != nil {
			return err
		}
		if dead, tainted := len(unknown(nodes)), len(noExecute(nodes, "a")); dead != 10 || tainted == 0 {
			return fmt.Errorf("%d of 20 nodes are Unknown, %d tainted NoExecute", dead, tainted)
		}
		return nil
	})
	must(t, w.othersReady(f.names[10:]))
}
