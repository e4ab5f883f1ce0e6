package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/controllers/node"
	"minikcm/test/controlplane"
)

// A webhook for the status of nodes hangs until the API server goes on without a response. The node becomes Unknown
// all the same.
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
		w.taints(name)
	}
	hook.Hang()
	f.silence(f.names[0])
	w.onlyUnknown(f.names[0])
	w.taints(f.names[0], corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	if hook.Requests() == 0 {
		t.Error("the webhook received no request: the test has not reached its subject")
	}
}
