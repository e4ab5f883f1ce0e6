package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// In the place of a kubeadm kube-controller-manager: its user, its flag, and the roles that every API server makes by itself.
func TestUpstreamsRolesSufficeWithServiceAccounts(t *testing.T) {
	const user = "system:kube-controller-manager"
	client := cluster.Client(t)
	// Only the name of the Lease is ours.
	name := "minikcm-test-lease"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"controller-manager"}, Verbs: []string{"get", "update"}},
	}}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.RbacV1().ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})

	begin := time.Now()
	p := controlplane.StartProcess(t, "--kubeconfig="+cluster.Kubeconfig(t, user), "--secure-port=0", "--use-service-account-credentials", "-v=2")
	namespace := cluster.Namespace(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		rs, err := client.AppsV1().ReplicaSets(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && rs.Status.Replicas != 2 {
			err = fmt.Errorf("%d replicas, want 2", rs.Status.Replicas)
		}
		return err
	})
	for _, e := range cluster.AuditLog(t, controlplane.Completed, controlplane.ByResource("pods"), controlplane.ByVerb("create"), controlplane.ByNamespace(namespace)) {
		if want := "system:serviceaccount:kube-system:replicaset-controller"; e.User.Username != want {
			t.Errorf("pod created by %s, want %s", e.User.Username, want)
		}
	}
	doomed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "doomed-"}}
	doomed, err := client.CoreV1().Namespaces().Create(t.Context(), doomed, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), doomed.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, doomed.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the namespace is still there"), err)
	})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, e := range cluster.AuditLog(t, controlplane.Completed, controlplane.ByCode(403), controlplane.ByUserAgent("controller-manager")) {
		if e.RequestReceivedTimestamp.After(begin) { // before, an API server that had just come up refused the managers of other tests
			t.Errorf("%s was refused %s %s", e.User.Username, e.Verb, e.RequestURI)
		}
	}
}
