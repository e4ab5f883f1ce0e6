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

func TestFrozenSecondServesThePast(t *testing.T) {
	ns := cluster.Namespace(t)
	second := ClientFor(t, cluster.AtSecond(cluster.Config()))
	seen := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := second.AppsV1().ReplicaSets(ns).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"}) // from the cache
			return err
		}
	}
	cluster.Create(t, ReplicaSet(ns, "before", 1))
	Eventually(t, 10*time.Second, seen("before"))

	cluster.FreezeSecond()
	t.Cleanup(cluster.ThawSecond) // also if the test ends early
	cluster.Create(t, ReplicaSet(ns, "during", 1))
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
