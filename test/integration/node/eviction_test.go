package node

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

var evictTaint = corev1.Taint{Key: "kubernetes.io/e2e-evict-taint-key", Value: "evictTaintVal", Effect: corev1.TaintEffectNoExecute}

// TestUIDPreconditions: both controllers rely on the API server to reject writes with the UID of another pod.
func TestUIDPreconditions(t *testing.T) {
	w := newWorld(t)
	w.pod(w.ns, "p", "")
	pods := w.client.CoreV1().Pods(w.ns)
	patch := []byte(`{"metadata":{"uid":"another"},"status":{"phase":"Failed"}}`)
	if _, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); !apierrors.IsInvalid(err) {
		t.Errorf("patch for another UID: %v, want it invalid", err)
	}
	err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete for another UID: %v, want a conflict", err)
	}
}

// TestSlowDeletesDoNotBlockOtherNamespaces: pods of another namespace go before the first slow delete ends.
func TestSlowDeletesDoNotBlockOtherNamespaces(t *testing.T) {
	t.Parallel()
	for _, controller := range []string{podgc.Name, tainteviction.Name} {
		t.Run(controller, func(t *testing.T) {
			const slow = 40 // more than workers, and more than slow syncs that podgc with two workers allows
			w := newWorld(t)
			other := cluster.Namespace(t)
			first, second := w.node("first"), w.node("second")
			for n := range slow {
				w.pod(w.ns, fmt.Sprint("slow-", n), first)
			}
			w.pod(other, "quick", second)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: w.ns, TimeoutSeconds: 30})
			hook.Hang()
			w.start(scaled(), w.config(controller), w.config(controller), controller)
			lose := func(name string) {
				if controller == podgc.Name {
					controlplane.Must(t, w.client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
				} else {
					w.setTaints(name, evictTaint)
				}
			}
			lose(first)
			controlplane.Eventually(t, patience, func(context.Context) error {
				if n := hook.Requests(); n < 8 {
					return fmt.Errorf("admission has received %d requests", n)
				}
				return nil
			})
			lose(second)
			w.eventually(other, "quick", isLeaving)
			ended := cluster.AuditLog(t, controlplane.Completed, controlplane.ByVerb("delete"),
				controlplane.ByNamespace(w.ns), controlplane.ByUser(controlplane.ServiceAccount("node-"+w.scope)))
			if len(ended) > 0 {
				t.Errorf("the pod of the other namespace went after slow deletions had ended:\n%s", ended)
			}
			hook.Heal()
			for n := range slow {
				w.eventually(w.ns, fmt.Sprint("slow-", n), isLeaving)
			}
		})
	}
}
