package controlplane

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Create creates objects of any types with the admin's rights.
func (c *Cluster) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	admin, err := NewClient(c.admin)
	Must(t, err)
	for _, object := range objects {
		Must(t, admin.Create(t.Context(), object))
	}
}

// ReplicaSet returns a ReplicaSet that selects and makes pods labelled app=name. The edits are applied in order.
func ReplicaSet(namespace, name string, replicas int32, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	for _, edit := range edits {
		edit(rs)
	}
	return rs
}

// AwaitReplicas waits until a ReplicaSet of [ReplicaSet] has, and reports, a number of pods. Terminating pods do not
// count.
func AwaitReplicas(t testing.TB, client kubernetes.Interface, namespace, name string, want int) {
	t.Helper()
	Eventually(t, time.Minute, func(ctx context.Context) error {
		rs, err := client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		active := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if int(rs.Status.Replicas) != want || len(active) != want {
			return fmt.Errorf("%s has %d pods and %d in its status, want %d", name, len(active), rs.Status.Replicas, want)
		}
		return nil
	})
}

// Deployment returns a Deployment that selects and makes pods labelled app=name. The edits are applied in order.
func Deployment(namespace, name string, replicas int32, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

// Pod returns a pod with the labels, on no node. The edits are applied in order.
func Pod(namespace, name string, labels map[string]string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       podSpec(),
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}}
}

// Node returns a node. The edits are applied in order. A create does not store a node's status: see kubelet.PostReady.
// The API server's admission taints a new node node.kubernetes.io/not-ready:NoSchedule.
func Node(name string, edits ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for _, edit := range edits {
		edit(node)
	}
	return node
}

// Editable is the part of a typed client that [Edit] needs.
type Editable[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
}

// Edit changes an object and retries after conflicts.
func Edit[T any](t testing.TB, client Editable[T], name string, changes ...func(T)) (edited T) {
	t.Helper()
	Eventually(t, statusTimeout, func(ctx context.Context) error {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(object)
		}
		edited, err = client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	return edited
}

func NodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func Disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.DisruptionTarget {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
