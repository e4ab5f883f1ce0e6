package namespace_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

var widgets = schema.GroupVersionResource{Group: "crd.example.com", Version: "v1", Resource: "widgets"}

// The case of upstream's test/integration/namespace.TestNamespaceCondition, with custom resources.
func TestConditionsHaveTheKnownTexts(t *testing.T) {
	m := start(t)
	client := cluster.Client(t)
	admin, err := controlplane.NewClient(cluster.Config())
	controlplane.Must(t, err)
	definition := controlplane.CustomType(widgets.Group, widgets.Resource, "Widget")
	// An earlier definition may not be gone yet, and the type is served a moment later.
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { return admin.Create(ctx, definition) })
	t.Cleanup(func() { controlplane.Must(t, admin.Delete(context.Background(), definition)) })
	ns := create(t)
	pod(t, client, ns, "pod")
	for name, finalizers := range map[string][]string{"w-0": {"custom.io/finalizer"}, "w-1": {"custom.io/finalizer"}, "w-2": nil} {
		widget := &unstructured.Unstructured{}
		widget.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
		widget.SetNamespace(ns)
		widget.SetName(name)
		widget.SetFinalizers(finalizers)
		controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { return admin.Create(ctx, widget) })
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
	controlplane.Consistently(t, 2*time.Second, func(ctx context.Context) error { return namespaceKnown(ctx, client, ns) })
	if lists := m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("list"), controlplane.ByResource("secrets")); len(lists) != 1 {
		t.Errorf("secrets, found empty, were listed %d times while widgets were held", len(lists))
	}
	release(t, widgets, ns, "w-0")
	release(t, widgets, ns, "w-1")
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
