package node

import (
	"context"
	"fmt"
	"slices"
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

// Upstream's end-to-end test "pods evicted from tainted nodes have pod disruption condition", and the event.
func TestEvictedPodHasDisruptionTarget(t *testing.T) {
	w := newWorld(t)
	name := w.node("tainted")
	pod := w.pod("p", name, finalized)
	w.start(defaults(), tainteviction.Name)
	w.setTaints(name, evictTaint)
	found := w.eventually(w.ns, "p", isTerminating(corev1.PodPending))
	checkDisruption(t, found, &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 1,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	})
	if grace := found.DeletionGracePeriodSeconds; grace == nil || *grace != 30 {
		t.Errorf("grace period %v, want the pod's own, 30", grace)
	}
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		list, err := w.client.CoreV1().Events(w.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Message == "Marking for deletion Pod "+w.ns+"/p" && e.Reason == "TaintManagerEviction" && e.Type == corev1.EventTypeNormal &&
				e.InvolvedObject.UID == pod.UID && e.Source.Component == "taint-eviction-controller"
		}) {
			return fmt.Errorf("no event about the eviction among %+v", list.Items)
		}
		return nil
	})
}

// TestUIDPreconditions: both controllers rely on the API server to reject writes with the UID of another pod.
func TestUIDPreconditions(t *testing.T) {
	w := newWorld(t)
	w.pod("p", "")
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
				w.pod(fmt.Sprint("slow-", n), first)
			}
			w.podIn(other, "quick", second)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: w.ns, TimeoutSeconds: 30})
			hook.Hang()
			w.start(defaults(), controller)
			lose := func(name string) {
				if controller == podgc.Name {
					must(t, w.client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
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
			ended := cluster.AuditLog(t, controlplane.Completed, controlplane.ByVerb("delete"), controlplane.ByNamespace(w.ns), controlplane.ByUser(controlplane.ServiceAccount("node-"+w.scope)))
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
