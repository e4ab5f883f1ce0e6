package namespace_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

var widgets = schema.GroupVersion{Group: "crd.example.com", Version: "v1"}

// The case of upstream's test/integration/namespace.TestNamespaceCondition, with custom resources.
func TestConditionsHaveTheKnownTexts(t *testing.T) {
	m := start(t)
	admin, err := controlplane.NewClient(cluster.Config())
	controlplane.Must(t, err)
	definition := controlplane.CustomType(widgets.Group, "widgets", "Widget")
	// An earlier definition may not be gone yet, and the type is served a moment later.
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { return admin.Create(ctx, definition) })
	t.Cleanup(func() { controlplane.Must(t, admin.Delete(context.Background(), definition)) })
	ns := create(t)
	cluster.Create(t, controlplane.Pod(ns, "pod", nil))
	var held []*unstructured.Unstructured
	for name, finalizers := range map[string][]string{"w-0": {"custom.io/finalizer"}, "w-1": {"custom.io/finalizer"}, "w-2": nil} {
		widget := &unstructured.Unstructured{}
		widget.SetGroupVersionKind(widgets.WithKind("Widget"))
		widget.SetNamespace(ns)
		widget.SetName(name)
		widget.SetFinalizers(finalizers)
		controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { return admin.Create(ctx, widget) })
		if len(finalizers) > 0 {
			held = append(held, widget)
		}
	}
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
		corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered All resources successfully discovered",
		corev1.NamespaceDeletionContentFailure:   "False ContentDeleted All content successfully deleted, may be waiting on finalization",
		corev1.NamespaceContentRemaining:         "True SomeResourcesRemain Some resources are remaining: widgets.crd.example.com has 2 resource instances",
		corev1.NamespaceFinalizersRemaining:      "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: custom.io/finalizer in 2 resource instances",
		"NamespaceDeletionBlocked": "True FinalizersRemain 2 widgets.crd.example.com held by finalizer custom.io/finalizer (w-0, w-1). What to do: " +
			"start the controller that is to remove the finalizer, or remove it by hand",
	})
	wantBlocked(t, m, ns, 1)
	controlplane.Consistently(t, 2*time.Second, func(ctx context.Context) error { return namespaceKnown(ctx, cluster.Client(t), ns) })
	if lists := m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("list"), controlplane.ByResource("secrets")); len(lists) != 1 {
		t.Errorf("secrets, found empty, were listed %d times while widgets were held", len(lists))
	}
	for _, widget := range held {
		controlplane.Must(t, admin.Patch(t.Context(), widget, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	}
	gone(t, ns, 10*time.Second)
	wantBlocked(t, m, ns, 0)
}

func podsFirst(t testing.TB, m *manager, ns string, gate time.Time) {
	t.Helper()
	log := cluster.AuditLog(t, controlplane.ByUserAgent(m.agent), controlplane.ByNamespace(ns))
	opened := false
	for _, e := range log {
		switch {
		case e.Verb == "list" && e.ObjectRef.Resource == "pods" && e.Stage == auditv1.StageResponseComplete && e.ResponseStatus.Code == 200:
			opened = opened || !e.RequestReceivedTimestamp.Time.Before(gate)
		case controlplane.Writes(&e) && e.Stage == auditv1.StageRequestReceived && e.ObjectRef.Resource != "pods" && e.ObjectRef.Resource != "namespaces" && !opened:
			t.Errorf("%s %s at %v, before the pods were proven gone (gate %v)", e.Verb, e.RequestURI, e.StageTimestamp.Time, gate)
		}
	}
	if !opened {
		t.Error("no list of pods after the grace")
	}
}
