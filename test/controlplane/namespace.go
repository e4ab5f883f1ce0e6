package controlplane

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace creates a namespace named after the test. The end of the test deletes the namespace with the Deployments,
// ReplicaSets, pods and Leases in it, because controllers of later tests would see these objects.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	client := c.Client(t)
	prefix := strings.Trim(notInName.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	prefix = strings.TrimRight(prefix[:min(len(prefix), 40)], "-")
	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			logRollouts(ctx, t, client, ns.Name)
		}
		if err := removeNamespace(ctx, client, ns.Name); err != nil {
			t.Logf("remove namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// logRollouts logs the Deployments, ReplicaSets and events of a namespace.
func logRollouts(ctx context.Context, t testing.TB, client kubernetes.Interface, name string) {
	if list, err := client.AppsV1().Deployments(name).List(ctx, metav1.ListOptions{}); err == nil {
		for _, d := range list.Items {
			t.Logf("Deployment %s: generation %d, annotations %v, spec of %d, status %+v", d.Name, d.Generation, d.Annotations, *d.Spec.Replicas, d.Status)
		}
	}
	if list, err := client.AppsV1().ReplicaSets(name).List(ctx, metav1.ListOptions{}); err == nil {
		for _, s := range list.Items {
			t.Logf("ReplicaSet %s: generation %d, annotations %v, spec of %d of %s, status %+v",
				s.Name, s.Generation, s.Annotations, *s.Spec.Replicas, s.Spec.Template.Spec.Containers[0].Image, s.Status)
		}
	}
	if list, err := client.CoreV1().Events(name).List(ctx, metav1.ListOptions{}); err == nil {
		for _, e := range list.Items {
			t.Logf("Event %s %s %s/%s %d times: %s", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Count, e.Message)
		}
	}
}

// removeNamespace does the work of the namespace controller. The namespace is deleted first, so that no object is
// created afterwards.
func removeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64), PropagationPolicy: new(metav1.DeletePropagationBackground)}
	all := metav1.ListOptions{}
	errs := []error{
		client.CoreV1().Namespaces().Delete(ctx, name, now),
		client.AppsV1().Deployments(name).DeleteCollection(ctx, now, all),
		client.AppsV1().ReplicaSets(name).DeleteCollection(ctx, now, all),
		client.CoreV1().Pods(name).DeleteCollection(ctx, now, all),
		client.CoordinationV1().Leases(name).DeleteCollection(ctx, now, all),
	}
	ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		ns.Spec.Finalizers = nil
		_, err = client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	}
	errs = append(errs, err)
	for i, err := range errs {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			errs[i] = nil // a namespace controller under test was faster
		}
	}
	return errors.Join(errs...)
}
