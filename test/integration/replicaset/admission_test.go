package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// TestScaleDownRefusedAndTakenBack: a webhook lets no pod go, so the user wants all of them again. None may go when it has healed.
func TestScaleDownRefusedAndTakenBack(t *testing.T) {
	start(t, defaults())
	for _, tt := range []struct {
		name     string
		replicas int
		template func(*appsv1.ReplicaSet)
		long     bool
	}{
		{"20 pods without a node", 20, func(*appsv1.ReplicaSet) {}, false},
		{"20 pods on a node", 20, onNode, false},
		{"500 pods without a node", 500, func(*appsv1.ReplicaSet) {}, true},
		{"500 pods on a node", 500, onNode, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				controlplane.SkipUnlessLong(t)
			}
			t.Parallel()
			n := newNamespace(t)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: n.name})
			all := tt.replicas
			rs := n.apply(int32(all), tt.template)
			o := n.observe(rs, 0, all)
			slowly(t, func(context.Context) error {
				if got := n.get("rs").Status.Replicas; int(got) != all {
					return fmt.Errorf("%d replicas, want %d", got, all)
				}
				return nil
			})
			o.settledAt(all)
			before := n.active(rs)

			hook.Break()
			n.scale("rs", 2)
			slowly(t, func(context.Context) error {
				if got := hook.Requests(); got < all-2 {
					return fmt.Errorf("%d deletes were refused, want %d", got, all-2)
				}
				return nil
			})
			n.scale("rs", int32(all))
			rs = n.settled("rs")
			hook.Heal()

			// A pod that somebody else deletes brings another sync, and is the only one that goes.
			o.bounds(all-1, all)
			n.delete(before[0], 0)
			slowly(t, func(context.Context) error {
				now := n.active(rs)
				if len(now) != all || slices.Contains(now, before[0]) {
					return fmt.Errorf("%d active pods, want %d, and %s replaced", len(now), all, before[0])
				}
				return nil
			})
			o.catchUp()
			now := n.active(rs)
			for _, name := range before[1:] {
				if !slices.Contains(now, name) {
					t.Errorf("pod %s is gone", name)
				}
			}
			n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return failure(s) == nil })
		})
	}
}

// slowly waits for what takes a second with 20 pods and may take a minute with 500.
func slowly(t testing.TB, check func(context.Context) error) {
	t.Helper()
	controlplane.Eventually(t, 3*time.Minute, check)
}

// TestScaledUpAgainWhilePodsEnd: kubelets report deleted pods as failed before they go. That says nothing about new ones.
func TestScaledUpAgainWhilePodsEnd(t *testing.T) {
	start(t, defaults())
	n := newNamespace(t)
	rs := n.apply(10, onNode)
	n.settled("rs")
	n.scale("rs", 1)
	n.settled("rs")
	for _, pod := range n.pods() {
		if pod.DeletionTimestamp != nil {
			controlplane.SetPodStatus(t, n.client, n.name, pod.Name, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
		}
	}
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool {
		return s.TerminatingReplicas != nil && *s.TerminatingReplicas == 0
	})
	n.scale("rs", 10)
	n.settled("rs")
	if got := len(n.active(rs)); got != 10 {
		t.Errorf("%d active pods, want 10", got)
	}
}

// TestNamespaceRecreated: creates were refused because the namespace was terminating. It has gone since without its contents, and is there
// again.
func TestNamespaceRecreated(t *testing.T) {
	watches := faults.New(t, watcherConfig(), faults.WithName("watches"))
	standby(t, defaults(), controllerConfig(), watches.Config(), clock.RealClock{}).beginTerm()
	n := newNamespace(t)
	rs := n.apply(2)
	n.settled("rs")
	freeze := watches.FreezeWatches(faults.Watches("namespaces"))
	namespaces := n.client.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range n.active(rs) {
		n.delete(name)
	}
	n.eventually(func(context.Context) error {
		refused := cluster.AuditLog(t, controlplane.Completed, controlplane.ByNamespace(n.name), controlplane.ByVerb("create"),
			controlplane.ByResource("pods"), controlplane.ByCode(403))
		if len(refused) == 0 {
			return fmt.Errorf("no create was refused")
		}
		return nil
	})
	n.eventually(func(ctx context.Context) error {
		ns, err := namespaces.Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ns.Spec.Finalizers = nil
		_, err = namespaces.Finalize(ctx, ns, metav1.UpdateOptions{})
		return err
	})
	n.eventually(func(ctx context.Context) error {
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	freeze.Thaw()
	controlplane.Eventually(t, time.Minute, func(context.Context) error {
		if got := len(n.active(rs)); got != 2 {
			return fmt.Errorf("%d active pods, want 2", got)
		}
		return nil
	})
}
