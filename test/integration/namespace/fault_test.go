package namespace_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
