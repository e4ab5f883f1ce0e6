package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"minikcm/test/controlplane"
)

func cleanupContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// discovered waits until the extension is, or is not, part of a complete discovery.
func discovered(t *testing.T, want bool) {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	check(t, err)
	controlplane.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		_, lists, err := disco.ServerGroupsAndResourcesWithContext(ctx)
		has := slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == extensionGroup+"/v1" })
		if has != want || want && err != nil || !want && err == nil {
			return fmt.Errorf("extension discovered: %v, %v", has, err)
		}
		return nil
	})
}

// forgotten waits until discovery is complete without the extension, as the next test expects it.
func forgotten(t *testing.T) {
	t.Helper()
	disco, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	check(t, err)
	controlplane.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		groups, _, err := disco.ServerGroupsAndResourcesWithContext(ctx)
		if err == nil && slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == extensionGroup }) {
			err = errors.New("the extension is still discovered")
		}
		return err
	})
}

// available waits until kube-apiserver lets requests through to the extension.
func available(t *testing.T) {
	t.Helper()
	apis, err := aggregator.NewForConfig(cluster.Config())
	check(t, err)
	controlplane.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		api, err := apis.ApiregistrationV1().APIServices().Get(ctx, "v1."+extensionGroup, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range api.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("APIService: %+v", api.Status)
	})
}

func TestTypesWithFewVerbs(t *testing.T) {
	ns := create(t)
	e := &extension{
		types: map[string][]string{
			"singles":   {"delete", "list", "get"},              // no deletecollection: one by one
			"liars":     {"delete", "deletecollection", "list"}, // returns 405 for deletecollection: one by one, too
			"blinds":    {"delete", "get"},                      // no list: nothing can be done, counts as empty
			"permanent": {"list", "get"},                        // no delete: none of our business
		},
		objects: map[string]map[string][]string{
			"singles": {ns + "/a": nil, ns + "/b": nil}, "liars": {ns + "/c": nil}, "permanent": {ns + "/d": nil},
		},
	}
	extend(t, e)
	discovered(t, true)
	available(t)
	start(t)
	remove(t, ns)
	gone(t, ns, 20*time.Second)
	prefix := " /apis/stub.example.com/v1/namespaces/" + ns + "/"
	got := e.requests()
	slices.Sort(got)
	want := []string{
		"DELETE" + prefix + "liars", "DELETE" + prefix + "liars/c",
		"DELETE" + prefix + "singles/a", "DELETE" + prefix + "singles/b",
		"GET" + prefix + "liars", "GET" + prefix + "liars", "GET" + prefix + "singles", "GET" + prefix + "singles",
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBrokenAPIService(t *testing.T) {
	ns := create(t)
	client := cluster.Client(t)
	configMap(t, client, ns, "content")
	e := &extension{down: true, types: map[string][]string{"widgets": {"delete", "list"}}, objects: map[string]map[string][]string{"widgets": {ns + "/w": nil}}}
	extend(t, e)
	discovered(t, false)
	m := start(t)
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "True DiscoveryFailed Discovery failed for some groups, 1 failing: ",
		corev1.NamespaceContentRemaining:         "False ContentRemoved All content successfully removed",
		corev1.NamespaceDeletionContentFailure:   "False ContentDeleted",
	})
	if left := leftovers(t, ns); len(left) > 0 {
		t.Errorf("what can be seen was not deleted: %v", left)
	}
	wantMetric(t, m, "namespace_deletion_blocked", ns, "discovery", 1)
	controlplane.Consistently(t, 5*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return err
	})
	if n := len(m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("deletecollection"))); n != 1 {
		t.Errorf("%d deletecollections while waiting, want 1", n)
	}
	if n := len(m.requests(t, controlplane.ByNamespace(ns), controlplane.ByVerb("list"), controlplane.ByResource("secrets"))); n != 1 {
		t.Errorf("secrets were listed %d times while waiting, want once", n)
	}
	e.set(false)
	available(t) // the aggregator takes its time; ours starts here
	gone(t, ns, 30*time.Second)
	if got := e.requests(); !slices.Contains(got, "DELETE /apis/stub.example.com/v1/namespaces/"+ns+"/widgets/w") {
		t.Errorf("the extension's object was orphaned: %v", got)
	}
}

// wantMetric waits until the manager's gauge has the value for the namespace and a second label.
func wantMetric(t *testing.T, m *manager, name, ns, label string, want float64) {
	t.Helper()
	controlplane.Eventually(t, 10*time.Second, func(context.Context) error {
		got, ok := gauge(t, m.Metrics, name, ns, label)
		if !ok || got != want {
			return fmt.Errorf("%s of %s and %s: %v (exists: %v), want %v", name, ns, label, got, ok, want)
		}
		return nil
	})
}

func gauge(t *testing.T, registry *prometheus.Registry, name string, labels ...string) (float64, bool) {
	t.Helper()
	families, err := registry.Gather()
	check(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var values []string
			for _, pair := range metric.GetLabel() {
				values = append(values, pair.GetValue())
			}
			missing := func(l string) bool { return !slices.Contains(values, l) }
			if family.GetName() == name && !slices.ContainsFunc(labels, missing) {
				return metric.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}
