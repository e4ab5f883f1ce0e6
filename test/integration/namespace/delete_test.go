package namespace_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

func TestEmptyNamespaceCostsFewRequests(t *testing.T) {
	t.Parallel()
	const wait = time.Second
	m := start(t, grace(wait))
	ns := create(t)
	begin := time.Now()
	remove(t, ns)
	gone(t, ns, 10*time.Second)
	took := time.Since(begin)
	m.Stop()
	sent := m.requests(t).Select(func(e *auditv1.Event) bool {
		return e.ObjectRef == nil || e.ObjectRef.Namespace == "" || e.ObjectRef.Namespace == ns
	})
	t.Logf("gone after %v, %d requests", took.Round(time.Millisecond), len(sent))
	// A second pass repeats seven requests if the first pass began within the grace period, as on a slow machine.
	if most := 47; len(sent) > most {
		t.Errorf("%d requests, want at most %d:\n%s", len(sent), most, sent)
	}
	if writes := sent.Select(controlplane.Writes); len(writes) != 1 {
		t.Errorf("%d writes, want the finalization alone:\n%s", len(writes), writes)
	}
	if refused := cluster.AuditLog(t, controlplane.ByUserAgent(m.agent), controlplane.ByCode(409)); len(refused) > 0 {
		t.Errorf("conflicts:\n%s", refused)
	}
	if took < wait {
		t.Errorf("gone after %v with a grace of %v", took, wait)
	}
}

// The case of upstream's test/integration/namespace.TestNamespaceCondition, with custom resources.
func TestConditionsHaveTheKnownTexts(t *testing.T) {
	m := start(t)
	client := cluster.Client(t)
	defineWidgets(t)
	ns := create(t)
	pod(t, client, ns, "pod")
	makeWidget(t, ns, "w-0", "custom.io/finalizer")
	makeWidget(t, ns, "w-1", "custom.io/finalizer")
	makeWidget(t, ns, "w-2")
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

// The case of upstream's e2e "namespace deletion should delete pod first", with the truth about pods in the
// conditions.
func TestPodsGoFirst(t *testing.T) {
	t.Parallel()
	m := start(t)
	client := cluster.Client(t)
	ns := create(t)
	pod(t, client, ns, "held", withFinalizer, onNode)
	configMap(t, client, ns, "kept")
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionContentFailure: "False ContentDeleted",
		corev1.NamespaceContentRemaining:       "True SomeResourcesRemain Some resources are remaining: pods. has 1 resource instances",
		corev1.NamespaceFinalizersRemaining:    "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: e2e.example.com/finalizer in 1 resource instances",
	})
	held, err := client.CoreV1().Pods(ns).Get(t.Context(), "held", metav1.GetOptions{})
	check(t, err)
	if held.DeletionTimestamp == nil {
		t.Error("the pod is not being deleted")
	}
	if *held.DeletionGracePeriodSeconds != 30 {
		t.Errorf("grace period of the pod %d s, want its own 30 s", *held.DeletionGracePeriodSeconds)
	}
	controlplane.Consistently(t, 2*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
	release(t, corev1.SchemeGroupVersion.WithResource("pods"), ns, "held")
	kill(t, client, ns, "held")
	gone(t, ns, 10*time.Second)
	podsFirst(t, m, ns, time.Time{})
	if n := len(m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"), controlplane.ByResource("pods"))); n != 1 {
		t.Errorf("pods were deleted %d times, want once", n)
	}
}
