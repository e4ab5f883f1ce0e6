package namespace_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

// Admission refuses the deletion of the first pod, and deletecollection ends there. The others go all the same.
func TestOneProtectedPodKeepsNoOther(t *testing.T) {
	t.Parallel()
	m := start(t)
	client := cluster.Client(t)
	ns := create(t)
	for _, name := range []string{"a-protected", "b", "c"} {
		pod(t, client, ns, name)
	}
	configMap(t, client, ns, "kept")
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: ns, Name: "a-protected"})
	hook.Deny("protected")
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionContentFailure: "True ContentDeletionFailed Failed to delete all resource types, 1 remaining: delete pods: a-protected: ",
		corev1.NamespaceContentRemaining:       "True SomeResourcesRemain Some resources are remaining: pods. has 1 resource instances",
		"NamespaceDeletionBlocked":             "protected",
	})
	if left := strings.Join(leftovers(t, ns), ", "); left != "configmap kept, pod a-protected" {
		t.Errorf("left over: %s", left)
	}
	hook.Heal()
	gone(t, ns, 30*time.Second)
	podsFirst(t, m, ns, time.Time{})
}
