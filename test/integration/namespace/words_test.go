package namespace_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

func configMap(t testing.TB, client kubernetes.Interface, ns, name string) {
	t.Helper()
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	controlplane.Must(t, err)
}

func pod(t testing.TB, client kubernetes.Interface, ns, name string, edits ...func(*corev1.Pod)) {
	t.Helper()
	_, err := client.CoreV1().Pods(ns).Create(t.Context(), controlplane.Pod(ns, name, nil, edits...), metav1.CreateOptions{})
	controlplane.Must(t, err)
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "no-such-node" }

// kill plays the kubelet of a pod that has ended.
func kill(t testing.TB, client kubernetes.Interface, ns, name string) {
	t.Helper()
	controlplane.Must(t, client.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

func atOnce(n, limit int, f func(i int)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wait.Wait()
}

func namespaceKnown(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return err
}

// release removes the finalizers of an object.
func release(t testing.TB, resource schema.GroupVersionResource, ns, name string) {
	t.Helper()
	_, err := controlplane.MetadataFor(t, cluster.Config()).Resource(resource).Namespace(ns).
		Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	controlplane.Must(t, err)
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
	client := controlplane.MetadataFor(t, cluster.Config())
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
