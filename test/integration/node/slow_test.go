package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/node"
	"minikcm/test/controlplane"
)

// A webhook for the status of nodes hangs until the API server goes on without a response. The node becomes Unknown all the same.
func TestHangingWebhookDelaysOnlyItsWrites(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("a", 5)
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"UPDATE"}, Resource: "nodes/status", TimeoutSeconds: 2, Ignore: true, Users: controlplane.ServiceAccount("node-" + w.scope),
	})
	cfg := scaled()
	cfg.MonitorGracePeriod = 4 * time.Second
	w.start(cfg, node.Name)
	for _, name := range f.names {
		w.settled(name, 0)
	}
	hook.Hang()
	f.silence(true, f.names[0])
	w.onlyUnknown(f.names[0])
	w.taints(f.names[0], corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	if hook.Requests() == 0 {
		t.Error("the webhook received no request: the test has not reached its subject")
	}
}

// The controller may send 20 requests a second, as upstream's may by default. While the pods of one dead node use them up, another dead node
// is found, and nobody takes our own limit for an API server that does not answer.
func TestRateLimitIsNotBlindness(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("a", 5)
	pods := w.pods(f.names[0], 100)
	cfg := w.config(node.Name)
	cfg.QPS, cfg.Burst = 20, 30
	running := w.standby(scaled(), cfg, w.config(node.Name), node.Name).BeginTerm()
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
			list, err := w.client.CoreV1().Pods(w.ns).List(ctx, metav1.ListOptions{})
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
	w.notReady(pods...)
	t.Logf("%d of %d pods were waiting to be marked when the second node was found", left, len(pods))
	for _, cause := range []string{"api_unreachable", "blind_credit"} {
		if n := running.Metric(t, "node_collector_skipped_health_updates_total", cause); n != 0 {
			t.Errorf("%v verdicts were not passed because of %s", n, cause)
		}
	}
}
