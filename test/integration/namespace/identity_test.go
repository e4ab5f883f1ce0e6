package namespace_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

func TestActiveNamespacesAreLeftAlone(t *testing.T) {
	t.Parallel()
	m := start(t)
	client := cluster.Client(t)
	name := create(t)
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if ns.Labels[corev1.LabelMetadataName] != name {
		t.Errorf("label %q", ns.Labels[corev1.LabelMetadataName])
	}
	_, err = client.CoreV1().Namespaces().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"StatusPatch","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	_, err = client.CoreV1().Namespaces().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	check(t, err)
	other := create(t)
	remove(t, other)
	gone(t, other, 10*time.Second) // by then the controller has seen the changes, too
	if sent := m.requests(t, controlplane.ByName(name)); len(sent) > 0 {
		t.Errorf("requests about an active namespace:\n%s", sent)
	}
	ns, err = client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if got := condition(ns, "StatusPatch"); !strings.HasPrefix(got, "True") {
		t.Errorf("foreign condition %q", got)
	}
	remove(t, name)
	gone(t, name, 10*time.Second)
}

func TestRecreatedNamespaceKeepsItsContent(t *testing.T) {
	t.Parallel()
	start(t)
	client := cluster.Client(t)
	name := create(t)
	for range 4 {
		configMap(t, client, name, "content")
		remove(t, name)
		controlplane.Eventually(t, 10*time.Second, func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, named(t, name), metav1.CreateOptions{})
			return err
		})
		if left := leftovers(t, name); len(left) > 0 {
			t.Errorf("content of the old namespace in the new one: %v", left)
		}
	}
	configMap(t, client, name, "content")
	controlplane.Consistently(t, 500*time.Millisecond, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(name).Get(ctx, "content", metav1.GetOptions{})
		return err
	})
	remove(t, name)
	gone(t, name, 10*time.Second)
}

// A client finalizes the namespace by force and creates it again during a pass.
func TestReplacedNamespaceStopsThePass(t *testing.T) {
	t.Parallel()
	client := cluster.Client(t)
	name := create(t)
	var once sync.Once
	var lists atomic.Int32
	replace := hook(func(req *http.Request) error {
		// The second list of pods is the one that opens the gate for the others.
		if !strings.HasSuffix(req.URL.Path, "/namespaces/"+name+"/pods") || lists.Add(1) < 2 {
			return nil
		}
		var err error
		once.Do(func() { err = replaceNamespace(t, client, name) })
		return err
	})
	m := start(t, func(s *setup) { s.transport = replace.wrap })
	remove(t, name)
	controlplane.Eventually(t, 10*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(name).Get(ctx, "of-the-new-one", metav1.GetOptions{})
		return err
	})
	controlplane.Consistently(t, time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(name).Get(ctx, "of-the-new-one", metav1.GetOptions{})
		return err
	})
	if writes := m.requests(t, controlplane.ByNamespace(name), controlplane.Writes); len(writes) > 0 {
		t.Errorf("writes:\n%s", writes)
	}
	remove(t, name)
	gone(t, name, 10*time.Second)
}

func replaceNamespace(t *testing.T, client kubernetes.Interface, name string) error {
	ctx := context.Background()
	ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.Spec.Finalizers = nil
	if _, err := client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, named(t, name), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-the-new-one"}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
