package tainteviction

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/test/controlplane"
)

// hourOld is a taint of node health from an hour ago.
func hourOld(key string) corev1.Taint {
	added := metav1.NewTime(time.Now().Add(-time.Hour))
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
}

// The manager has been away for an hour, and so the deadlines of all pods have passed. What happened to the node meanwhile?
func TestManagerBackAfterAnHour(t *testing.T) {
	const window = 4 * time.Second
	const unreachable = corev1.TaintNodeUnreachable
	ago := time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		name      string
		ready     corev1.ConditionStatus
		meanwhile func(t *testing.T, node string) // while the window lasts
		at        time.Duration                   // when the pod leaves; zero: never
	}{
		{"nothing: it is as dead as before", corev1.ConditionUnknown, nil, window},
		{"it recovered", corev1.ConditionTrue, nil, 0},
		{"it recovers now", corev1.ConditionUnknown, func(t *testing.T, node string) {
			postReady(t, cluster.Client(t), node, corev1.ConditionTrue)
		}, 0},
		{"it renews its Lease now", corev1.ConditionUnknown, func(t *testing.T, node string) {
			renew(t, cluster.Client(t), node, time.Now())
		}, 2 * window},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			node := createNode(t, client, tt.ready, hourOld(unreachable))
			renew(t, client, node, ago)
			createPod(t, client, ns, "p", node, tolerates(unreachable, 300))
			now := testingclock.NewFakeClock(time.Now()) // the window lasts until the test says so
			began := now.Now()
			startAt(t, window, now)
			if tt.ready == corev1.ConditionUnknown {
				leaseIsRead(t, node)
			}
			if tt.meanwhile != nil {
				now.Step(window / 4)
				stays(t, client, ns, "p", soon/4)
				tt.meanwhile(t, node)
			}
			if tt.at == 0 {
				for range 2 {
					now.Step(window)
					stays(t, client, ns, "p", soon)
				}
				return
			}
			evictedWhile(t, client, ns, "p", func() { now.Step(window / 40) })
			if d := now.Since(began); d < tt.at {
				t.Errorf("evicted after %v, want after %v", d, tt.at)
			}
		})
	}
}

// leaseIsRead waits until the controller has read the Lease of a node.
func leaseIsRead(t *testing.T, node string) {
	t.Helper()
	controlplane.Eventually(t, patience, func(context.Context) error {
		if len(cluster.AuditLog(t, controlplane.Completed, controlplane.ByVerb("get"), controlplane.ByResource("leases"), controlplane.ByName(node))) == 0 {
			return fmt.Errorf("the Lease of %s has not been read", node)
		}
		return nil
	})
}

// The deletion is refused, and then called off.
func TestRefusedDeletion(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client, corev1.ConditionTrue)
	createPod(t, client, ns, "p", node)
	createPod(t, client, ns, "q", node)
	refuseDeletes(t, ns)
	start(t, time.Minute)
	setTaints(t, client, node, evictTaint())
	mark := func(name string, want corev1.ConditionStatus) {
		t.Helper()
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			pod, err := client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c := controlplane.Disruption(pod); c == nil || c.Status != want || pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s deleted %v, condition %+v; want it marked %s", name, pod.DeletionTimestamp, c, want)
			}
			return nil
		})
	}
	mark("p", corev1.ConditionTrue)
	mark("q", corev1.ConditionTrue)
	pod, err := client.CoreV1().Pods(ns).Get(t.Context(), "q", metav1.GetOptions{})
	must(t, err)
	tolerates(evictKey)(pod)
	_, err = client.CoreV1().Pods(ns).Update(t.Context(), pod, metav1.UpdateOptions{})
	must(t, err)
	mark("q", corev1.ConditionFalse) // this pod may stay now
	mark("p", corev1.ConditionTrue)
	allowDeletes(t)
	evicted(t, client, ns, "p")
	mark("q", corev1.ConditionFalse)
}

const policy = "refuse-deletes"

// refuseDeletes has the API server refuse to delete the pods of a namespace, as a webhook might.
func refuseDeletes(t *testing.T, namespace string) {
	t.Helper()
	client := cluster.Client(t)
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules:     []admissionv1.NamedRuleWithOperations{rule},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { allowDeletes(t) })
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		err := client.CoreV1().Pods(namespace).Delete(ctx, "p", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the policy does not act yet: %v", err)
	})
}

func allowDeletes(t *testing.T) {
	t.Helper()
	client := cluster.Client(t).AdmissionregistrationV1()
	for _, err := range []error{
		client.ValidatingAdmissionPolicyBindings().Delete(context.Background(), policy, metav1.DeleteOptions{}),
		client.ValidatingAdmissionPolicies().Delete(context.Background(), policy, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// What the controller builds on: a write for one pod does not reach another of its name.
func TestUIDPreconditions(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	createPod(t, client, ns, "p", createNode(t, client, corev1.ConditionTrue))
	pods := client.CoreV1().Pods(ns)
	patch := []byte(`{"metadata":{"uid":"another"},"status":{"phase":"Failed"}}`)
	if _, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); !apierrors.IsInvalid(err) {
		t.Errorf("patch for another UID: %v, want it refused as invalid", err)
	}
	err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete for another UID: %v, want a conflict", err)
	}
}
