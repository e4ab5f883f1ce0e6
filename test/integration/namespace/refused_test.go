package namespace_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// protect lets admission refuse the deletion of one pod, until the function it returns is called.
func protect(t *testing.T, ns, pod string) (lift func()) {
	t.Helper()
	client := cluster.Client(t).AdmissionregistrationV1()
	name := "protect-" + ns
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("oldObject.metadata.name != %q", pod), Message: "protected"}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	check(t, err)
	lift = func() {
		for _, err := range []error{
			client.ValidatingAdmissionPolicyBindings().Delete(cleanupContext(t), name, metav1.DeleteOptions{}),
			client.ValidatingAdmissionPolicies().Delete(cleanupContext(t), name, metav1.DeleteOptions{}),
		} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(lift)
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { // until the API server applies it
		err := cluster.Client(t).CoreV1().Pods(ns).Delete(ctx, pod, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !strings.Contains(fmt.Sprint(err), "protected") {
			return fmt.Errorf("delete %s: %v", pod, err)
		}
		return nil
	})
	return lift
}

// Admission refuses the deletion of the first pod, and deletecollection ends there. The others go all the same.
func TestOneProtectedPodKeepsNoOther(t *testing.T) {
	m := start(t)
	client := cluster.Client(t)
	ns := create(t)
	for _, name := range []string{"a-protected", "b", "c"} {
		pod(t, client, ns, name)
	}
	configMap(t, client, ns, "kept")
	lift := protect(t, ns, "a-protected")
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionContentFailure: "True ContentDeletionFailed Failed to delete all resource types, 1 remaining: delete pods: a-protected: ",
		corev1.NamespaceContentRemaining:       "True SomeResourcesRemain Some resources are remaining: pods. has 1 resource instances",
		"NamespaceDeletionBlocked":             "protected",
	})
	if left := strings.Join(leftovers(t, ns), ", "); left != "configmap kept, pod a-protected" {
		t.Errorf("left over: %s", left)
	}
	lift()
	gone(t, ns, 30*time.Second)
	podsFirst(t, m, ns, time.Time{})
}
