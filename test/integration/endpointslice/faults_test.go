package endpointslice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// A webhook rejects slices, then hangs.
func TestWebhook(t *testing.T) {
	start(t, "manager")
	w := newWorld(t)
	hook := cluster.Webhook(t, controlplane.Webhook{APIGroup: "discovery.k8s.io", Resource: "endpointslices", Namespace: w.ns})
	hook.Deny("not today")
	w.service("web")
	w.pods("web", 1, 2)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		events, err := w.client.CoreV1().Events(w.ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedToUpdateEndpointSlices,involvedObject.name=web"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "Service" && e.Source.Component == "endpoint-slice-controller" &&
				e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "not today") {
				return nil
			}
		}
		return fmt.Errorf("no event about the rejection in %d events", len(events.Items))
	})
	hook.Delay(2 * time.Second)
	w.gets("web", 1, 2)
}
