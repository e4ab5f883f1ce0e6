package controlplane

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var cluster *Cluster

func TestMain(m *testing.M) {
	if os.Getenv(spinEnv) != "" {
		spin()
	}
	started := time.Now()
	os.Exit(Run(m, Options{Audit: true, SecondAPIServer: true}, func(c *Cluster) {
		cluster = c
		fmt.Printf("control plane with two API servers usable after %.1f s\n", time.Since(started).Seconds())
	}))
}

func TestUsersAreAuthorizedByRBAC(t *testing.T) {
	ns := cluster.Namespace(t)
	rs := ReplicaSet(ns, "web", 2)

	nobody := ClientFor(t, cluster.ConfigFor("nobody"))
	_, err := nobody.AppsV1().ReplicaSets(ns).Create(t.Context(), rs, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create ReplicaSet as nobody: %v, want forbidden", err)
	}
	// Roles that the API server brings along are in effect from the start.
	manager := ClientFor(t, cluster.ConfigFor("system:kube-controller-manager"))
	if _, err := manager.AppsV1().ReplicaSets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list ReplicaSets as system:kube-controller-manager: %v", err)
	}
	group := ClientFor(t, cluster.ConfigFor("somebody", "system:masters"))
	if _, err := group.AppsV1().ReplicaSets(ns).Create(t.Context(), rs, metav1.CreateOptions{}); err != nil {
		t.Errorf("create ReplicaSet as a member of system:masters: %v", err)
	}
}

func TestGrantedRoleComesIntoEffect(t *testing.T) {
	ns := cluster.Namespace(t)
	rbac := cluster.Client(t).RbacV1()
	_, err := rbac.Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reader := ClientFor(t, cluster.ConfigFor("reader"))
	Eventually(t, 10*time.Second, func(ctx context.Context) error {
		_, err := reader.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestRestartKeepsDataPortAndUsers(t *testing.T) {
	ns := cluster.Namespace(t)
	client := cluster.Client(t)
	rs, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), ReplicaSet(ns, "web", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := ClientFor(t, cluster.AtSecond(cluster.Config()))

	for _, stop := range []struct {
		name string
		stop func() error
	}{{"stop", cluster.StopAPIServer}, {"kill", cluster.KillAPIServer}} {
		started := time.Now()
		if err := stop.stop(); err != nil {
			t.Fatalf("%s: %v", stop.name, err)
		}
		stopped := time.Now()
		if _, err := client.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("get after %s: %v, want a refused connection", stop.name, err)
		}
		if _, err := second.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
			t.Errorf("get from the second API server after %s: %v", stop.name, err)
		}
		if events := cluster.AuditLog(t, ByNamespace(ns), ByVerb("create")); len(events) == 0 {
			t.Errorf("audit log after %s has lost the create", stop.name)
		}
		resume := time.Now()
		if err := cluster.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s took %v, start %v", stop.name, stopped.Sub(started).Round(time.Millisecond), time.Since(resume).Round(time.Millisecond))
		got, err := client.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || got.UID != rs.UID {
			t.Errorf("get after %s and start = uid %s, %v; want uid %s", stop.name, got.GetUID(), err, rs.UID)
		}
	}
}

func TestFrozenSecondServesThePast(t *testing.T) {
	ns := cluster.Namespace(t)
	client, second := cluster.Client(t), ClientFor(t, cluster.AtSecond(cluster.Config()))
	cached := metav1.GetOptions{ResourceVersion: "0"}
	create := func(name string) {
		t.Helper()
		if _, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), ReplicaSet(ns, name, 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := second.AppsV1().ReplicaSets(ns).Get(ctx, name, cached)
			return err
		}
	}
	create("before")
	Eventually(t, 10*time.Second, seen("before"))

	cluster.FreezeSecond()
	t.Cleanup(cluster.ThawSecond) // also if the test ends early
	create("during")
	Consistently(t, 500*time.Millisecond, func(ctx context.Context) error {
		if err := seen("during")(ctx); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get from the frozen API server: %v, want not found", err)
		}
		return seen("before")(ctx)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := second.AppsV1().ReplicaSets(ns).Create(ctx, ReplicaSet(ns, "late", 1), metav1.CreateOptions{}); err == nil {
		t.Error("a frozen API server has stored an object")
	}

	cluster.ThawSecond()
	Eventually(t, 10*time.Second, seen("during"))
}

func TestPausedAPIServerAnswersLater(t *testing.T) {
	client := cluster.Client(t)
	if err := cluster.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.ResumeAPIServer() }) // also if the test ends early
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
		t.Error("a paused API server has answered")
	}
	if err := cluster.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func TestNamespaceIsGoneAfterItsTest(t *testing.T) {
	client := cluster.Client(t)
	var ns string
	t.Run("With Objects_and/odd name", func(t *testing.T) {
		ns = cluster.Namespace(t)
		if _, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), ReplicaSet(ns, "web", 1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		onNode := func(p *corev1.Pod) { p.Spec.NodeName = "nowhere" } // only a kubelet or force removes it
		if _, err := client.CoreV1().Pods(ns).Create(t.Context(), Pod(ns, "web-1", nil, onNode), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.HasPrefix(ns, "testnamespaceisgoneafteritstest-with") {
		t.Errorf("namespace is called %s", ns)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get namespace: %v, want not found", err)
	}
	pods, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("list pods = %d, %v; want none", len(pods.Items), err)
	}
	sets, err := client.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 0 {
		t.Errorf("list ReplicaSets = %d, %v; want none", len(sets.Items), err)
	}
}

func TestKubeconfigIsTheUser(t *testing.T) {
	for name, cfg := range map[string]string{
		"first server":  cluster.Kubeconfig(t, "reader", "readers"),
		"second server": cluster.KubeconfigFor(t, cluster.AtSecond(cluster.ConfigFor("reader", "readers"))),
	} {
		rest, err := clientcmd.BuildConfigFromFlags("", cfg)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(rest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), `User "reader" cannot list`) {
			t.Errorf("%s: list pods: %v, want reader to be forbidden", name, err)
		}
	}
}

func TestPlayedKubelet(t *testing.T) {
	ns := cluster.Namespace(t)
	client := cluster.Client(t)
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), Pod(ns, "a", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	MarkPodReady(t, client, ns, "a")
	pod, err := client.CoreV1().Pods(ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) != 1 {
		t.Errorf("status after MarkPodReady = %+v, %v", pod.Status, err)
	}
	SetPodPhase(t, client, ns, "a", corev1.PodFailed)
	pod, err = client.CoreV1().Pods(ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodFailed || len(pod.Status.Conditions) != 0 {
		t.Errorf("status after SetPodPhase = %+v, %v", pod.Status, err)
	}

	node := Node("played-" + ns)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}) })
	MarkNodeReady(t, client, node.Name)
	got, err := client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	if err != nil || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("status after MarkNodeReady = %+v, %v", got.Status.Conditions, err)
	}
}

// The authorizer must know of the rights as soon as somebody has them, and of no others.
func TestManagersHaveTheRightsOfDeployAlone(t *testing.T) {
	ns := cluster.Namespace(t)
	for _, tt := range []struct {
		what        string
		controllers []string
		creates     bool // ReplicaSets' pods
		deletes     bool // anything, for namespaces
	}{
		{"no such controller", []string{"other-controller"}, false, false},
		{"one controller", []string{"replicaset-controller"}, true, false},
		{"all controllers", nil, true, true},
	} {
		client := ClientFor(t, cluster.ManagerConfig("test", tt.controllers...))
		_, err := client.CoreV1().Pods(ns).Create(t.Context(), Pod(ns, "web", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if refused := apierrors.IsForbidden(err); refused == tt.creates {
			t.Errorf("%s: create a pod: %v, want allowed = %v", tt.what, err, tt.creates)
		}
		err = client.CoreV1().ConfigMaps(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{})
		if refused := apierrors.IsForbidden(err); refused == tt.deletes {
			t.Errorf("%s: delete ConfigMaps: %v, want allowed = %v", tt.what, err, tt.deletes)
		}
		if _, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "controller-manager", metav1.GetOptions{}); apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
