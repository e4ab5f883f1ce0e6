package namespace_test

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

// TestSlowAdmissionIsNoError: deletecollection deletes objects one after the other, so a page takes longer than the
// deadline of a write. A webhook with failurePolicy Ignore then delays the finalization by its timeout, less than the
// 34 s of the API server.
func TestSlowAdmissionIsNoError(t *testing.T) {
	t.Parallel()
	m := start(t)
	ns := create(t)
	content := make([]client.Object, 150)
	for i := range content {
		content[i] = configMap(ns, fmt.Sprintf("slow-%03d", i))
	}
	cluster.Create(t, content...)
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "configmaps", Namespace: ns})
	hook.Delay(150 * time.Millisecond)
	finalization := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"UPDATE"}, Resource: "namespaces/finalize", Name: ns, TimeoutSeconds: 12, Ignore: true,
	})
	finalization.Hang()
	remove(t, ns)
	gone(t, ns, 3*time.Minute)
	if finalization.Requests() == 0 {
		t.Error("the webhook of finalizations got no request")
	}
	cut := m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"), controlplane.ByResource("configmaps"))
	if len(cut) < 2 {
		t.Errorf("%d deletecollections: the webhook was not slow enough to be noticed", len(cut))
	}
}
