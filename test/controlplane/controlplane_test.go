package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var cluster *Cluster

func TestMain(m *testing.M) {
	os.Exit(Run(m, Options{Audit: true, SecondAPIServer: true}, func(c *Cluster) { cluster = c }))
}

func TestRestartKeepsDataPortAndUsers(t *testing.T) {
	ns := cluster.Namespace(t)
	client := cluster.Client(t)
	rs, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), ReplicaSet(ns, "web", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := ClientFor(t, cluster.AtSecond(cluster.Config()))
	for name, stop := range map[string]func() error{"stop": cluster.primary.stopServer, "kill": cluster.KillAPIServer} {
		if err := stop(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := client.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("get after %s: %v, want a refused connection", name, err)
		}
		if _, err := second.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
			t.Errorf("get from the second API server after %s: %v", name, err)
		}
		if events := cluster.AuditLog(t, ByNamespace(ns), ByVerb("create")); len(events) == 0 {
			t.Errorf("audit log after %s has lost the create", name)
		}
		if err := cluster.StartAPIServer(); err != nil {
			t.Fatal(err)
		}
		got, err := client.AppsV1().ReplicaSets(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || got.UID != rs.UID {
			t.Errorf("get after %s and start = uid %s, %v; want uid %s", name, got.GetUID(), err, rs.UID)
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
