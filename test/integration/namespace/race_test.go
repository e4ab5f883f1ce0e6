package namespace_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/test/controlplane"
)

// stealIn creates a ConfigMap and a pod every 20 ms until ctx ends, at least three of each, and returns how many were
// admitted.
func stealIn(ctx context.Context, t *testing.T, client kubernetes.Interface, ns string) (admitted int) {
	t.Helper()
	for i := 0; i < 3 || ctx.Err() == nil; i++ {
		name := fmt.Sprint("late-", i)
		_, first := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(ns, name), metav1.CreateOptions{})
		_, second := client.CoreV1().Pods(ns).Create(t.Context(), controlplane.Pod(ns, name, nil), metav1.CreateOptions{})
		for _, err := range []error{first, second} {
			switch {
			case err == nil:
				admitted++
			case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
				t.Errorf("create: %v", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return admitted
}

// TestGraceOutlastsALaggingAPIServer deletes a namespace while another API server still admits objects in it. The fake
// clock stands until that server has caught up: the objects go within the grace period, and no pod outlives its
// NetworkPolicies.
func TestGraceOutlastsALaggingAPIServer(t *testing.T) {
	const lag = time.Second
	now := testingclock.NewFakeClock(time.Now())
	m := start(t, func(s *setup) { s.cfg.Grace, s.clock = 5*time.Second, now })
	ns := create(t)
	late := controlplane.ClientFor(t, cluster.AtSecond(cluster.Config()))
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error { return namespaceKnown(ctx, late, ns) })
	_, err := late.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(ns, "before"), metav1.CreateOptions{})
	controlplane.Must(t, err)
	cluster.FreezeSecond("namespaces")
	t.Cleanup(cluster.ThawSecond)
	remove(t, ns)
	lagging, cancel := context.WithTimeout(t.Context(), lag)
	defer cancel()
	admitted := stealIn(lagging, t, late, ns)
	cluster.ThawSecond()
	if admitted < 5 {
		t.Fatalf("%d objects were admitted: the second API server is not behind", admitted)
	}
	graceEnds := time.Now()
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		now.Step(time.Second)
		return isGone(ctx, cluster.Client(t), ns)
	})
	if left := contentOf(t, ns); len(left) > 0 {
		t.Errorf("orphans %v", left)
	}
	podsFirst(t, m, ns, graceEnds)
}
