package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"minikcm/examples/own-controller/foo"
	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.Cluster) { cluster = c }))
}

const patience = 30 * time.Second

func TestFooGetsItsDeployment(t *testing.T) {
	install(t)
	ns := cluster.Namespace(t)
	controlplane.StartProgram(t, program(t), "--kubeconfig="+cluster.ManagerKubeconfig(t, "own"), "--secure-port=0", "--concurrent-foo-syncs=1",
		"--controllers=*,-deployment") // the test writes the status of the Deployment
	deployments, owner := cluster.Client(t).AppsV1().Deployments(ns), newFoo(ns, 2)
	cluster.Create(t, controlplane.Deployment(ns, "web", 1), owner)
	replicas := func(want int32) *appsv1.Deployment {
		t.Helper()
		var got *appsv1.Deployment
		controlplane.Eventually(t, patience, func(ctx context.Context) (err error) {
			if got, err = deployments.Get(ctx, "web", metav1.GetOptions{}); err == nil && *got.Spec.Replicas != want {
				err = fmt.Errorf("the Deployment has %d replicas, want %d", *got.Spec.Replicas, want)
			}
			return err
		})
		return got
	}
	waitForEvent := func(reason string) {
		t.Helper()
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			events, err := cluster.Client(t).CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Foo,reason=" + reason})
			if err == nil && len(events.Items) == 0 {
				err = fmt.Errorf("no event %s about the Foo", reason)
			}
			return err
		})
	}
	waitForEvent("NameTaken")
	controlplane.Must(t, deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	first := replicas(2)
	waitForEvent("Created")

	t.Run("Deployment is scaled", func(t *testing.T) {
		_, err := deployments.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
		controlplane.Must(t, err)
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err == nil && (got.Generation < first.Generation+2 || *got.Spec.Replicas != 2) {
				err = fmt.Errorf("generation %d with %d replicas, want the size to be changed and restored", got.Generation, *got.Spec.Replicas)
			}
			return err
		})
	})
	t.Run("Deployment is deleted", func(t *testing.T) {
		controlplane.Must(t, deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		if again := replicas(2); again.UID == first.UID {
			t.Error("the Deployment was not deleted")
		}
	})
	t.Run("status is reported", func(t *testing.T) {
		now := replicas(2)
		now.Status.Replicas, now.Status.ReadyReplicas, now.Status.AvailableReplicas = 2, 2, 2
		_, err := deployments.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		controlplane.Must(t, err)
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			err := admin(t).Get(ctx, client.ObjectKeyFromObject(owner), owner)
			if n, _, _ := unstructured.NestedInt64(owner.Object, "status", "availableReplicas"); err == nil && n != 2 {
				err = fmt.Errorf("availableReplicas is %d, want 2", n)
			}
			return err
		})
	})
}

func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own-controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func install(t *testing.T) {
	t.Helper()
	crd, role := &unstructured.Unstructured{}, &rbacv1.ClusterRole{}
	read(t, "deploy/crd.yaml", &crd.Object)
	read(t, "deploy/rbac.yaml", role)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: controlplane.ServiceAccount("own")}},
	}
	for _, object := range []client.Object{crd, role, binding} {
		if err := admin(t).Create(t.Context(), object); !apierrors.IsAlreadyExists(err) { // by an earlier run
			controlplane.Must(t, err)
		}
	}
	foos := &unstructured.UnstructuredList{}
	foos.SetGroupVersionKind(foo.Foos.GroupVersion().WithKind("FooList"))
	controlplane.Eventually(t, patience, func(ctx context.Context) error { return admin(t).List(ctx, foos) })
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	controlplane.Must(t, err)
	controlplane.Must(t, yaml.Unmarshal(raw, into))
}

func admin(t *testing.T) client.Client {
	t.Helper()
	c, err := controlplane.NewClient(cluster.Config())
	controlplane.Must(t, err)
	return c
}

func newFoo(namespace string, replicas int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Foo", "metadata": map[string]any{"namespace": namespace, "name": "a"},
		"spec": map[string]any{"deploymentName": "web", "image": "example.com/web", "replicas": replicas},
	}}
}
