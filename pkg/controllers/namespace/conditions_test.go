package namespace

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"

	"minikcm/pkg/controllers/internal/discovery"
)

func all(metav1.APIResource) bool { return true }

// coreOnly is the discovery of an API server that serves namespaces only.
var coreOnly = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "namespaces", Verbs: metav1.Verbs{"delete", "list"}}}}}

func left(group, name string, n int64, finalizers map[string]int) typeResult {
	return typeResult{
		resource:  discovery.Type{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, List: true},
		remaining: n, finalizers: finalizers,
	}
}

// allWell returns the conditions without a blocker, the first five as kube-controller-manager v1.37 writes them.
func allWell(changed metav1.Time) []corev1.NamespaceCondition {
	return []corev1.NamespaceCondition{
		{Type: "NamespaceDeletionDiscoveryFailure", Status: "False", LastTransitionTime: changed, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
		{Type: "NamespaceDeletionGroupVersionParsingFailure", Status: "False", LastTransitionTime: changed, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		{Type: "NamespaceDeletionContentFailure", Status: "False", LastTransitionTime: changed, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
		{Type: "NamespaceContentRemaining", Status: "False", LastTransitionTime: changed, Reason: "ContentRemoved", Message: "All content successfully removed"},
		{Type: "NamespaceFinalizersRemaining", Status: "False", LastTransitionTime: changed, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
		{Type: "NamespaceDeletionBlocked", Status: "False", LastTransitionTime: changed, Reason: "NothingBlocks", Message: "Nothing is known to hold up the deletion"},
	}
}

func TestWithConditions(t *testing.T) {
	before, now := metav1.NewTime(at(-time.Hour)), metav1.NewTime(epoch)
	well, old := allWell(now), allWell(before)
	foreign := corev1.NamespaceCondition{Type: "unknown", Status: corev1.ConditionTrue}
	parsing := corev1.NamespaceCondition{
		Type: "NamespaceDeletionGroupVersionParsingFailure", Status: "True", LastTransitionTime: now, Reason: "GroupVersionParsingFailed", Message: "bar",
	}
	badDiscovery := corev1.NamespaceCondition{Type: "NamespaceDeletionDiscoveryFailure", Status: "True", LastTransitionTime: before}
	unparsable := report{content: discovery.Result{ParseErr: errors.New("bar")}}
	blocked := corev1.NamespaceCondition{
		Type: "NamespaceDeletionBlocked", Status: "True", LastTransitionTime: now, Reason: "DiscoveryIncomplete",
		Message: "bar. What to do: repair the server of the APIService, or delete the APIService if it is not wanted any more",
	}
	for _, tt := range []struct {
		name    string
		old     []corev1.NamespaceCondition
		r       report
		want    []corev1.NamespaceCondition
		changed bool
	}{
		{"leave unknown", []corev1.NamespaceCondition{foreign}, report{}, append([]corev1.NamespaceCondition{foreign}, well...), true},
		{"replace with success", []corev1.NamespaceCondition{badDiscovery}, report{}, well, true},
		{"leave different order", []corev1.NamespaceCondition{{Type: parsing.Type, Status: "True"}, badDiscovery}, report{},
			[]corev1.NamespaceCondition{well[1], well[0], well[2], well[3], well[4], well[5]}, true},
		{"overwrite with failure", []corev1.NamespaceCondition{{Type: parsing.Type, Status: "False"}, badDiscovery}, unparsable,
			[]corev1.NamespaceCondition{parsing, well[0], well[2], well[3], well[4], blocked}, true},
		{"write new failure", []corev1.NamespaceCondition{badDiscovery}, unparsable,
			[]corev1.NamespaceCondition{well[0], parsing, well[2], well[3], well[4], blocked}, true},
		{"nothing new", old, report{}, old, false},
		{"another text moves no time", []corev1.NamespaceCondition{old[0], {Type: parsing.Type, Status: "True", LastTransitionTime: before, Reason: "old", Message: "old"}, old[2], old[3], old[4], old[5]}, unparsable,
			[]corev1.NamespaceCondition{old[0], {Type: parsing.Type, Status: "True", LastTransitionTime: before, Reason: parsing.Reason, Message: "bar"}, old[2], old[3], old[4], blocked}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, changed := withConditions(tt.old, tt.r, now)
			if diff := cmp.Diff(tt.want, got); diff != "" || changed != tt.changed {
				t.Errorf("changed %v, want %v\n%s", changed, tt.changed, diff)
			}
		})
	}
}

func TestConditionTexts(t *testing.T) {
	sets, deployments := left("apps.k8s.io", "daemonsets", 5, nil), left("apps.k8s.io", "deployments", 5, map[string]int{"kubedb": 5})
	catalog := left("", "secrets", 6, map[string]int{"service-catalog": 6, "kubedb": 1})
	partial := &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "b.io", Version: "v1"}: errors.New("down")}}
	const (
		remaining  = "NamespaceContentRemaining SomeResourcesRemain Some resources are remaining: "
		finalizers = "NamespaceFinalizersRemaining SomeFinalizersRemain Some content in the namespace has finalizers remaining: "
	)
	for _, tt := range []struct {
		name string
		r    report
		want []string // type, reason and text of each condition that is True
	}{
		{"nothing", report{}, nil},
		{"just remaining", report{results: []typeResult{left("apps.k8s.io", "deployments", 5, nil), sets}},
			[]string{remaining + "daemonsets.apps.k8s.io has 5 resource instances, deployments.apps.k8s.io has 5 resource instances"}},
		{"both, each finalizer counted over all types", report{results: []typeResult{deployments, catalog}},
			[]string{remaining + "deployments.apps.k8s.io has 5 resource instances, secrets. has 6 resource instances",
				finalizers + "kubedb in 6 resource instances, service-catalog in 6 resource instances"}},
		{"pods are counted", report{results: []typeResult{left("", "pods", 2, map[string]int{"a.io/b": 1})}},
			[]string{remaining + "pods. has 2 resource instances", finalizers + "a.io/b in 1 resource instances"}},
		{"partial discovery", report{content: discovery.SelectTypes(nil, coreOnly, partial, epoch, all)},
			[]string{"NamespaceDeletionDiscoveryFailure DiscoveryFailed Discovery failed for some groups, 1 failing: " + partial.Error()}},
		{"no discovery", report{content: discovery.Result{Err: errors.New("no answer")}},
			[]string{"NamespaceDeletionDiscoveryFailure DiscoveryFailed no answer"}},
		{"failed types", report{results: []typeResult{{err: errors.New("b")}, {err: errors.New("a")}}},
			[]string{"NamespaceDeletionContentFailure ContentDeletionFailed Failed to delete all resource types, 2 remaining: a, b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conditions, _ := withConditions(nil, tt.r, metav1.NewTime(epoch))
			var got []string
			for _, c := range conditions {
				if c.Status == corev1.ConditionTrue && c.Type != deletionBlocked {
					got = append(got, string(c.Type)+" "+c.Reason+" "+c.Message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBlockedConditionHasObjectsAndRemedy(t *testing.T) {
	held := left("", "configmaps", 1, map[string]int{"a.io/b": 1})
	held.examples = map[string][]string{"a.io/b": {"settings"}}
	pods := left("", "pods", 1, nil)
	pods.examples = map[string][]string{"": {"p"}}
	fails := left("", "secrets", 0, nil)
	fails.err = errors.New("list secrets: forbidden")
	for _, tt := range []struct {
		name string
		r    report
		want string // reason and text
	}{
		{"a finalizer", report{results: []typeResult{held}},
			"FinalizersRemain 1 configmaps held by finalizer a.io/b (settings). What to do: start the controller that is to remove the finalizer, or remove it by hand"},
		{"pods come before what waits for them", report{results: []typeResult{pods, held}},
			"PodsRemain 1 pods remaining (p); 1 configmaps held by finalizer a.io/b (settings). What to do: see whether the pods' nodes are there, " +
				"and who should remove the pods' finalizers if they have any; start the controller that is to remove the finalizer, or remove it by hand"},
		{"an error has no remedy", report{results: []typeResult{fails}}, "RequestsFail list secrets: forbidden"},
		{"the namespace's own finalizers", report{finalizers: []string{"x.io/y"}},
			"NamespaceFinalizersRemain the namespace itself is held by its finalizer x.io/y. What to do: the owner of the namespace's finalizer is to remove it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conditions, _ := withConditions(nil, tt.r, metav1.NewTime(epoch))
			last := conditions[len(conditions)-1]
			if got := last.Reason + " " + last.Message; last.Type != "NamespaceDeletionBlocked" || last.Status != corev1.ConditionTrue || got != tt.want {
				t.Errorf("%s %s %s\nwant %s", last.Type, last.Status, got, tt.want)
			}
		})
	}
}

func TestBlockerTextIsBounded(t *testing.T) {
	var r report
	for i := range 1000 {
		o := left("", fmt.Sprintf("type-%03d", i), 0, nil)
		o.err = errors.New("no")
		r.results = append(r.results, o)
	}
	if b := blockerOf(r); len(b.text) > 1000 || !strings.HasSuffix(b.text, "; and 980 more") {
		t.Errorf("%d bytes: %s", len(b.text), b.text)
	}
}

func TestBlocker(t *testing.T) {
	held := left("apps", "deployments", 4, map[string]int{"a.io/b": 4})
	held.examples = map[string][]string{"a.io/b": {"w", "x", "y"}}
	free := left("", "pods", 2, nil)
	free.examples = map[string][]string{"": {"p", "q"}}
	hidden := typeResult{resource: discovery.Type{GroupVersionResource: schema.GroupVersionResource{Group: "h.io", Resource: "hidden"}}, unserved: true, unlisted: true}
	partial := discovery.SelectTypes(nil, coreOnly, &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "b.io", Version: "v1"}: errors.New("down")}}, epoch, all)
	fails := left("", "secrets", 0, nil)
	fails.err = errors.New("list secrets: forbidden")
	for _, tt := range []struct {
		name string
		r    report
		want blocker
	}{
		{"nothing", report{}, blocker{}},
		{"pods", report{results: []typeResult{free}}, blocker{[]string{"pods"}, "2 pods remaining (p, q)"}},
		{"finalizers name three objects", report{results: []typeResult{held}},
			blocker{[]string{"finalizers"}, "4 deployments.apps held by finalizer a.io/b (w, x, y, …)"}},
		{"the APIService by its name", report{content: partial},
			blocker{[]string{"discovery"}, "APIService v1.b.io cannot be discovered: down"}},
		{"an error, and what could not be looked at", report{results: []typeResult{fails, hidden}},
			blocker{[]string{"error"}, "list secrets: forbidden; types that cannot be listed were not looked at: hidden.h.io"}},
		{"several", report{content: partial, results: []typeResult{held, fails}}, blocker{
			[]string{"finalizers", "error", "discovery"},
			"4 deployments.apps held by finalizer a.io/b (w, x, y, …); list secrets: forbidden; APIService v1.b.io cannot be discovered: down"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, blockerOf(tt.r), cmp.AllowUnexported(blocker{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
