package namespace_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func through(proxy *faults.Proxy) func(*setup) {
	return func(s *setup) { s.rest = proxy.Config() }
}

func held(t *testing.T, ns string) (letGo func()) {
	t.Helper()
	client := cluster.Client(t)
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}, metav1.CreateOptions{})
	check(t, err)
	return func() {
		t.Helper()
		_, err := client.CoreV1().ConfigMaps(ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		check(t, err)
	}
}

func TestOneTypeFails(t *testing.T) {
	t.Parallel()
	secrets := func(verbs, ns string) faults.Match {
		return faults.Match{Verbs: verbs, Resource: "secrets", Namespace: ns}
	}
	for _, tt := range []struct {
		name  string
		verbs string
		fault faults.Fault
		says  string
		left  int // secrets that stay while the fault does
	}{
		{"cannot be listed", "list", faults.Refuse(http.StatusInternalServerError), "list secrets: ", 2},
		{"cannot be deleted", "delete,deletecollection", faults.Refuse(http.StatusInternalServerError), "delete secrets: ", 2},
		{"is throttled", "", faults.RefuseRetryAfter(http.StatusTooManyRequests, time.Second), "", 0},
		{"loses every answer", "deletecollection", faults.DropAnswer(), "delete secrets: ", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy := faults.New(t, rights("faulty"))
			m := start(t, through(proxy))
			client := cluster.Client(t)
			ns := create(t)
			letGo := held(t, ns)
			fill(t, client, ns, 6)
			rule := proxy.Inject(secrets(tt.verbs, ns), tt.fault)
			remove(t, ns)
			controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
				maps, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
				if err == nil && len(maps.Items) != 1 || rule.Hits() < 1 {
					err = fmt.Errorf("%d ConfigMaps, %d faults", len(maps.Items), rule.Hits())
				}
				return err
			})
			if tt.says != "" {
				shows(t, ns, map[corev1.NamespaceConditionType]string{
					corev1.NamespaceDeletionContentFailure: "True ContentDeletionFailed Failed to delete all resource types, 1 remaining: " + tt.says,
					"NamespaceDeletionBlocked":             tt.says,
				})
			}
			letGo()
			if tt.left > 0 {
				tries := rule.Hits()
				controlplane.Eventually(t, 10*time.Second, func(context.Context) error {
					if left := contentOf(t, ns); len(left) != tt.left || rule.Hits() < tries+3 {
						return fmt.Errorf("left %v, %d faults since the finalizer is gone", left, rule.Hits()-tries)
					}
					return nil
				})
				check(t, namespaceKnown(t.Context(), client, ns))
			}
			proxy.Clear()
			gone(t, ns, 20*time.Second)
			if left := contentOf(t, ns); len(left) > 0 {
				t.Errorf("orphans %v", left)
			}
			podsFirst(t, m, ns, time.Time{})
		})
	}
}

// The response to finalize is lost, and a client creates the namespace again before the retry.
func TestFinalizedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	proxy := faults.New(t, rights("faulty"))
	m := start(t, through(proxy))
	client := cluster.Client(t)
	ns := create(t)
	gate := faults.NewGate()
	proxy.Inject(faults.Match{Verbs: "update", Resource: "namespaces/finalize", Name: ns}, faults.HoldAnswer(gate), faults.Next(1))
	remove(t, ns)
	answer := gate.Next(t)
	gone(t, ns, 5*time.Second)
	_, err := client.CoreV1().Namespaces().Create(t.Context(), named(t, ns), metav1.CreateOptions{})
	check(t, err)
	configMap(t, client, ns, "of-the-new-one")
	seen := len(proxy.Requests())
	answer.Cut()
	other := create(t)
	remove(t, other)
	gone(t, other, 10*time.Second) // by then the controller has retried
	for _, r := range proxy.Requests()[seen:] {
		if strings.Contains(faults.Writes, r.Verb) && (r.Namespace == ns || r.Name == ns) {
			t.Errorf("%s %s after the namespace was made again", r.Verb, r.Path)
		}
	}
	m.Stop()
	start(t)
	remove(t, ns)
	gone(t, ns, 10*time.Second)
}

// Without any event the namespace goes all the same.
func TestFrozenWatches(t *testing.T) {
	t.Parallel()
	proxy := faults.New(t, rights("faulty"))
	start(t, through(proxy))
	ns := create(t)
	letGo := held(t, ns)
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{corev1.NamespaceFinalizersRemaining: "True SomeFinalizersRemain"})
	proxy.FreezeWatches(faults.Watches())
	letGo()
	gone(t, ns, 16*time.Second)
}
