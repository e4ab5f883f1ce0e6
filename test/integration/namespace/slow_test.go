package namespace_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestNamespaceGoesThroughAdmissionThatHangs: a webhook with failurePolicy Ignore delays each write of the namespace
// by its timeout, less than the 34 s of the API server.
func TestNamespaceGoesThroughAdmissionThatHangs(t *testing.T) {
	t.Parallel()
	ns := create(t)
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"UPDATE"}, Resource: "namespaces/finalize", Name: ns, TimeoutSeconds: 12, Ignore: true,
	})
	hook.Hang()
	start(t)
	check(t, cluster.Client(t).CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	t.Logf("gone after %v", gone(t, ns, time.Minute))
	if hook.Requests() == 0 {
		t.Error("admission was not asked")
	}
}

// TestASlowWebhookOnDeletesIsNoError: deletecollection deletes objects one after the other, so a page takes longer
// than the deadline of a write.
func TestASlowWebhookOnDeletesIsNoError(t *testing.T) {
	t.Parallel()
	const objects = 150
	client := cluster.Client(t)
	m := start(t)
	ns := create(t)
	fill(t, client, ns, 0)
	atOnce(objects, 8, func(i int) { configMap(t, client, ns, fmt.Sprintf("slow-%03d", i)) })
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "configmaps", Namespace: ns})
	hook.Delay(150 * time.Millisecond)
	begin := time.Now()
	remove(t, ns)
	gone(t, ns, 3*time.Minute)
	t.Logf("%d objects gone after %v", objects, time.Since(begin).Round(time.Millisecond))
	cut := m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"), controlplane.ByResource("configmaps"))
	if len(cut) < 2 {
		t.Errorf("%d deletecollections: the webhook was not slow enough to be noticed", len(cut))
	}
}
