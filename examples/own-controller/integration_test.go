package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"minikcm/examples/own-controller/foo"
	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
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
	foos := objects(t).Resource(foo.Foos).Namespace(ns)
	deployments := cluster.Client(t).AppsV1().Deployments(ns)
	if _, err := foos.Create(t.Context(), newFoo("a", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
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
	first := replicas(2)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		events, err := cluster.Client(t).CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Foo,reason=Created"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no event about the Foo")
		}
		return err
	})

	t.Run("Deployment is scaled", func(t *testing.T) {
		one := []byte(`{"spec":{"replicas":1}}`)
		if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, one, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err == nil && (got.Generation < first.Generation+2 || *got.Spec.Replicas != 2) {
				err = fmt.Errorf("generation %d with %d replicas, want the size to be changed and restored", got.Generation, *got.Spec.Replicas)
			}
			return err
		})
	})
	t.Run("Deployment is deleted", func(t *testing.T) {
		if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if again := replicas(2); again.UID == first.UID {
			t.Error("the Deployment was not deleted")
		}
	})
	t.Run("status is reported", func(t *testing.T) {
		now := replicas(2)
		now.Status.Replicas, now.Status.ReadyReplicas, now.Status.AvailableReplicas = 2, 2, 2
		if _, err := deployments.UpdateStatus(t.Context(), now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			got, err := foos.Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if n, _, _ := unstructured.NestedInt64(got.Object, "status", "availableReplicas"); n != 2 {
				return fmt.Errorf("availableReplicas is %d, want 2", n)
			}
			return nil
		})
	})
}

func TestWrongFlagsAreReportedTogether(t *testing.T) {
	cmd := command.New(append(app.Controllers(), foo.Registration(foo.DefaultConfig())))
	cmd.SetArgs([]string{"--concurrent-foo-syncs=0", "--concurrent-namespace-syncs=0"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	for _, flag := range []string{"--concurrent-foo-syncs: ", "--concurrent-namespace-syncs: "} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v, want %s in it", err, flag)
		}
	}
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
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd := &unstructured.Unstructured{}
	read(t, "deploy/crd.yaml", &crd.Object)
	role := &rbacv1.ClusterRole{}
	read(t, "deploy/rbac.yaml", role)
	_, crdErr := objects(t).Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{})
	rbac := cluster.Client(t).RbacV1()
	_, roleErr := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	_, bindingErr := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: controlplane.ServiceAccount("own")}},
	}, metav1.CreateOptions{})
	for _, err := range []error{crdErr, roleErr, bindingErr} {
		if err != nil && !apierrors.IsAlreadyExists(err) { // by an earlier run
			t.Fatal(err)
		}
	}
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		_, err := objects(t).Resource(foo.Foos).List(ctx, metav1.ListOptions{})
		return err
	})
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func objects(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newFoo(name string, replicas int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Foo", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"deploymentName": "web", "image": "example.com/web", "replicas": replicas},
	}}
}
