package namespace_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// A webhook that hangs and is passed over takes its own time from each write of the namespace. The API server
// has done such a write in less than the 34 s it gives one.
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
