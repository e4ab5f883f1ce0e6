package namespace_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"minikcm/test/controlplane"
)

func configMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func namespaceKnown(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return err
}

// condition returns the namespace's condition as status, reason and message.
func condition(ns *corev1.Namespace, kind corev1.NamespaceConditionType) string {
	for _, c := range ns.Status.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
	}
	return "none"
}

// shows waits until the conditions have the texts.
func shows(t testing.TB, name string, want map[corev1.NamespaceConditionType]string) {
	t.Helper()
	client := cluster.Client(t)
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for kind, text := range want {
			if got := condition(ns, kind); !strings.Contains(got, text) {
				return fmt.Errorf("%s: %q, want %q", kind, got, text)
			}
		}
		return nil
	})
}

// contentOf lists the objects of a namespace that tests create, by type, name, UID and time of deletion.
func contentOf(t testing.TB, ns string) (content []string) {
	t.Helper()
	client, err := metadata.NewForConfig(cluster.Config())
	controlplane.Must(t, err)
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("secrets"),
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"), corev1.SchemeGroupVersion.WithResource("services"),
		corev1.SchemeGroupVersion.WithResource("pods"), appsv1.SchemeGroupVersion.WithResource("replicasets"),
	} {
		list, err := client.Resource(resource).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		controlplane.Must(t, err)
		for _, o := range list.Items {
			content = append(content, fmt.Sprintf("%s %s %s %v", resource.Resource, o.Name, o.UID, o.DeletionTimestamp))
		}
	}
	return content
}

// requests returns the requests of the manager, without watches.
func (m *manager) requests(t testing.TB, matches ...controlplane.AuditMatch) controlplane.AuditEvents {
	t.Helper()
	matches = append(matches, controlplane.Received, func(e *auditv1.Event) bool { return e.UserAgent == m.agent && e.Verb != "watch" })
	return cluster.AuditLog(t, matches...)
}

// isGone reports whether the namespace is gone.
func isGone(ctx context.Context, client kubernetes.Interface, name string) error {
	ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("namespace %s is still there: %+v", name, ns.Status)
	}
}
