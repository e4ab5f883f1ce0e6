package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"minikcm/test/controlplane"
)

// TestBrokenAPIService deletes a namespace while an aggregated API has no server. The namespace stays until the API is
// gone.
func TestBrokenAPIService(t *testing.T) {
	ns := create(t)
	client := cluster.Client(t)
	cluster.Create(t, configMap(ns, "content"))
	const group = "broken.example.com"
	apis, err := aggregator.NewForConfig(cluster.Config())
	controlplane.Must(t, err)
	broken := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "none"},
		},
	}
	_, err = apis.ApiregistrationV1().APIServices().Create(t.Context(), broken, metav1.CreateOptions{})
	controlplane.Must(t, err)
	repair := sync.OnceFunc(func() {
		controlplane.Must(t, apis.ApiregistrationV1().APIServices().Delete(context.Background(), broken.Name, metav1.DeleteOptions{}))
	})
	t.Cleanup(repair)
	controlplane.Eventually(t, time.Minute, func(context.Context) error {
		if _, _, err := client.Discovery().ServerGroupsAndResources(); err == nil {
			return errors.New("discovery is complete")
		}
		return nil
	})
	m := start(t)
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "True DiscoveryFailed Discovery failed for some groups, 1 failing: ",
		corev1.NamespaceContentRemaining:         "False ContentRemoved All content successfully removed",
		corev1.NamespaceDeletionContentFailure:   "False ContentDeleted",
	})
	if left := contentOf(t, ns); len(left) > 0 {
		t.Errorf("content of other types was not deleted: %v", left)
	}
	wantBlocked(t, m, ns, 1)
	controlplane.Consistently(t, 5*time.Second, func(ctx context.Context) error { return namespaceKnown(ctx, client, ns) })
	if n := len(m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"))); n != 1 {
		t.Errorf("%d deletecollections while waiting, want 1", n)
	}
	repair()
	gone(t, ns, time.Minute)
}

// wantBlocked waits until the metric shows this number of causes for a namespace.
func wantBlocked(t *testing.T, m *manager, ns string, want float64) {
	t.Helper()
	controlplane.Eventually(t, 10*time.Second, func(context.Context) error {
		if got := m.Metric(t, "namespace_deletion_blocked", ns); got != want {
			return fmt.Errorf("%v causes of namespace %s in the metric, want %v", got, ns, want)
		}
		return nil
	})
}
