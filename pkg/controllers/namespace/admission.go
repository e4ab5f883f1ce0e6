package namespace

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// admissionHook is what matters here of a webhook of either kind.
type admissionHook struct {
	rules     []admissionv1.RuleWithOperations
	namespace *metav1.LabelSelector // namespaces it is asked about; nil: all
}

// readAdmission asks the API server for all admission webhooks.
func readAdmission(ctx context.Context, client kubernetes.Interface) ([]admissionHook, error) {
	ctx, cancel := context.WithTimeout(ctx, minPatience)
	defer cancel()
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list mutating webhooks: %w", err)
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list validating webhooks: %w", err)
	}
	var hooks []admissionHook
	for _, c := range mutating.Items {
		for _, h := range c.Webhooks {
			hooks = append(hooks, admissionHook{h.Rules, h.NamespaceSelector})
		}
	}
	for _, c := range validating.Items {
		for _, h := range c.Webhooks {
			hooks = append(hooks, admissionHook{h.Rules, h.NamespaceSelector})
		}
	}
	return hooks, nil
}

// mayHoldUp reports whether a create in a namespace with these labels may have passed the check that its namespace is there, and still wait for a
// webhook to answer.
func mayHoldUp(hooks []admissionHook, namespace map[string]string) bool {
	return slices.ContainsFunc(hooks, func(h admissionHook) bool {
		if h.namespace != nil {
			selector, err := metav1.LabelSelectorAsSelector(h.namespace)
			if err == nil && !selector.Matches(labels.Set(namespace)) {
				return false
			}
		}
		return slices.ContainsFunc(h.rules, isOfCreates)
	})
}

// isOfCreates reports whether the rule is, or may be, of creates in namespaces.
func isOfCreates(r admissionv1.RuleWithOperations) bool {
	ofCreate := func(o admissionv1.OperationType) bool {
		return o == admissionv1.Create || o == admissionv1.OperationAll
	}
	return slices.ContainsFunc(r.Operations, ofCreate) && (r.Scope == nil || *r.Scope != admissionv1.ClusterScope)
}
