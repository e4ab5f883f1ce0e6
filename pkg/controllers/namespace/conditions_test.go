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

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controllers/internal/discovery"
)

func all(metav1.APIResource) bool { return true }

// coreOnly is the discovery of an API server that serves namespaces only.
var coreOnly = []*metav1.APIResourceList{fakeapi.CoreList()}

func left(group, name string, n int64, finalizers map[string]int, examples map[string][]string) typeResult {
	return typeResult{
		resource:  discovery.Type{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, List: true},
		remaining: n, finalizers: finalizers, examples: examples,
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
		{"overwrite with failure in another order", []corev1.NamespaceCondition{{Type: parsing.Type, Status: "False"}, badDiscovery}, unparsable,
			[]corev1.NamespaceCondition{parsing, well[0], well[2], well[3], well[4], blocked}, true},
		{"nothing new", old, report{}, old, false},
		{"another text moves no time", []corev1.NamespaceCondition{old[0], {Type: parsing.Type, Status: "True", LastTransitionTime: before, Reason: "old", Message: "old"}, old[2], old[3], old[4], old[5]}, unparsable,
			[]corev1.NamespaceCondition{old[0], {Type: parsing.Type, Status: "True", LastTransitionTime: before, Reason: parsing.Reason, Message: "bar"}, old[2], old[3], old[4], blocked}, true},
	} {
		got, changed := withConditions(tt.old, tt.r, now)
		if diff := cmp.Diff(tt.want, got); diff != "" || changed != tt.changed {
			t.Errorf("%s: changed %v, want %v\n%s", tt.name, changed, tt.changed, diff)
		}
	}
}

// TestProblemTexts has the causes of a blocker, and type, reason and text of each condition that is True.
func TestProblemTexts(t *testing.T) {
	workload := left("apps.k8s.io", "deployments", 5, nil, map[string][]string{"": {"a", "b", "c"}})
	heldWorkload := left("apps.k8s.io", "deployments", 4, map[string]int{"a.io/b": 4}, map[string][]string{"a.io/b": {"w", "x", "y"}})
	sets := left("apps.k8s.io", "daemonsets", 1, nil, map[string][]string{"": {"d"}})
	secrets := left("", "secrets", 6, map[string]int{"c.io/d": 6, "a.io/b": 1}, map[string][]string{"c.io/d": {"s", "t", "u"}, "a.io/b": {"s"}})
	pods := left("", "pods", 2, map[string]int{"a.io/b": 1}, map[string][]string{"": {"p"}, "a.io/b": {"q"}})
	fails, alsoFails, unlisted := left("", "secrets", 0, nil, nil), left("", "events", 0, nil, nil), left("h.io", "hidden", 0, nil, nil)
	fails.err, alsoFails.err, unlisted.unlisted = errors.New("list secrets: forbidden"), errors.New("list events: forbidden"), true
	partial := &clientdiscovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "b.io", Version: "v1"}: errors.New("down")}}
	const (
		remaining  = "NamespaceContentRemaining SomeResourcesRemain Some resources are remaining: "
		finalizers = "NamespaceFinalizersRemaining SomeFinalizersRemain Some content in the namespace has finalizers remaining: "
		failure    = "NamespaceDeletionContentFailure ContentDeletionFailed Failed to delete all resource types, "
		blocked    = "NamespaceDeletionBlocked "
		startOwner = "start the controller that is to remove the finalizer, or remove it by hand"
		seeNodes   = "see whether the pods' nodes are there, and who should remove the pods' finalizers if they have any"
		repair     = "repair the server of the APIService, or delete the APIService if it is not wanted any more"
	)
	for _, tt := range []struct {
		name   string
		r      report
		causes []string
		want   []string
	}{
		{"nothing", report{}, nil, nil},
		{"objects", report{results: []typeResult{workload, sets}}, []string{"content"}, []string{
			remaining + "daemonsets.apps.k8s.io has 1 resource instances, deployments.apps.k8s.io has 5 resource instances",
			blocked + "ContentRemains 5 deployments.apps.k8s.io remaining (a, b, c, …); 1 daemonsets.apps.k8s.io remaining (d)"}},
		{"finalizers, each counted over all types", report{results: []typeResult{heldWorkload, secrets}}, []string{"finalizers"}, []string{
			remaining + "deployments.apps.k8s.io has 4 resource instances, secrets. has 6 resource instances",
			finalizers + "a.io/b in 5 resource instances, c.io/d in 6 resource instances",
			blocked + "FinalizersRemain 4 deployments.apps.k8s.io held by finalizer a.io/b (w, x, y, …); 1 secrets held by finalizer a.io/b (s); " +
				"6 secrets held by finalizer c.io/d (s, t, u, …). What to do: " + startOwner}},
		{"pods, before types that wait for them", report{results: []typeResult{pods, heldWorkload}}, []string{"pods", "finalizers"}, []string{
			remaining + "deployments.apps.k8s.io has 4 resource instances, pods. has 2 resource instances",
			finalizers + "a.io/b in 5 resource instances",
			blocked + "PodsRemain 1 pods held by finalizer a.io/b (q); 2 pods remaining (p, …); 4 deployments.apps.k8s.io held by finalizer a.io/b (w, x, y, …). " +
				"What to do: " + seeNodes + "; " + startOwner}},
		{"no discovery", report{content: discovery.Result{Err: errors.New("no response")}}, []string{"discovery"}, []string{
			"NamespaceDeletionDiscoveryFailure DiscoveryFailed no response", blocked + "DiscoveryIncomplete discovery fails: no response"}},
		{"failed types, and a type without list", report{results: []typeResult{fails, unlisted, alsoFails}}, []string{"error"}, []string{
			failure + "2 remaining: list events: forbidden, list secrets: forbidden",
			blocked + "RequestsFail list secrets: forbidden; list events: forbidden; types that cannot be listed were not looked at: hidden.h.io"}},
		{"several", report{content: discovery.SelectTypes(nil, coreOnly, partial, epoch, all), results: []typeResult{heldWorkload, fails}},
			[]string{"finalizers", "error", "discovery"}, []string{
				"NamespaceDeletionDiscoveryFailure DiscoveryFailed Discovery failed for some groups, 1 failing: " + partial.Error(),
				failure + "1 remaining: list secrets: forbidden",
				remaining + "deployments.apps.k8s.io has 4 resource instances",
				finalizers + "a.io/b in 4 resource instances",
				blocked + "RequestsFail 4 deployments.apps.k8s.io held by finalizer a.io/b (w, x, y, …); list secrets: forbidden; " +
					"APIService v1.b.io cannot be discovered: down. What to do: " + repair + "; " + startOwner}},
		{"finalizers of the namespace", report{finalizers: []string{"x.io/y"}}, []string{"namespace"}, []string{
			blocked + "NamespaceFinalizersRemain the namespace itself is held by its finalizer x.io/y. What to do: the owner of the namespace's finalizer is to remove it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conditions, _ := withConditions(nil, tt.r, metav1.NewTime(epoch))
			var got []string
			for _, c := range conditions {
				if c.Status == corev1.ConditionTrue {
					got = append(got, string(c.Type)+" "+c.Reason+" "+c.Message)
				}
			}
			expect(t, got, tt.want...)
			causes, _ := blockersOf(tt.r)
			expect(t, causes, tt.causes...)
		})
	}
}

func TestBlockerTextIsBounded(t *testing.T) {
	var r report
	for i := range 1000 {
		o := left("", fmt.Sprintf("type-%03d", i), 0, nil, nil)
		o.err = errors.New("no")
		r.results = append(r.results, o)
	}
	if _, text := blockersOf(r); len(text) > 1000 || !strings.HasSuffix(text, "; and 980 more") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestNextSync(t *testing.T) {
	for _, tt := range []struct {
		waited     time.Duration
		unfinished int
		want       time.Duration
	}{
		{-5 * time.Second, 1, 300 * time.Millisecond},
		{4 * time.Second, 1, time.Second},
		{4 * time.Second, 90, 2 * time.Second},
		{10 * time.Minute, 1, 8 * time.Second},
		{10*time.Minute + 1, 1, 30 * time.Second},
		{0, 10000, 30 * time.Second},
	} {
		fakeapi.Want(t, fmt.Sprintf("next sync after %v with %d namespaces", tt.waited, tt.unfinished), nextSync(tt.waited, tt.unfinished), tt.want)
	}
}
