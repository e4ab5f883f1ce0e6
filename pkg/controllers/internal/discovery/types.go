package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Type is a selected type in its chosen version.
type Type struct {
	schema.GroupVersionResource
	Kind                                  string
	Namespaced                            bool
	List, Delete, DeleteCollection, Watch bool // supported verbs
}

// String returns the name of the type for errors and conditions.
func (t Type) String() string { return t.GroupResource().String() }

// Pods is the type of pods, for use before discovery.
var Pods = Type{corev1.SchemeGroupVersion.WithResource("pods"), "Pod", true, true, true, true, true}

// Result is the result of one discovery.
type Result struct {
	Sent     time.Time // by our clock; zero without a request
	Types    []Type    // sorted by name
	Err      error     // nil if no group version failed
	Failing  []Failure // failed group versions, sorted
	ParseErr error     // of names of group versions

	versions map[schema.GroupResource][]string
}

// Failure is a group version that cannot be discovered.
type Failure struct {
	schema.GroupVersion
	Err error
}

// APIService returns the name of the APIService that serves the group version.
func (f Failure) APIService() string { return f.Version + "." + f.Group }

// Complete reports whether Types has all types.
func (res Result) Complete() bool { return !res.Sent.IsZero() && res.Err == nil && res.ParseErr == nil }

// Has reports whether the type was discovered in any version.
func (res Result) Has(r schema.GroupResource) bool { return len(res.versions[r]) > 0 }

// Versions returns the versions in which a type is wanted and served, the chosen version first.
func (res Result) Versions(r schema.GroupResource) []string { return res.versions[r] }

// SelectTypes returns every wanted type once, from the result of a discovery client: in the preferred version of the
// server, or else in the first wanted version. Subresources are left out.
func SelectTypes(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, err error, sent time.Time, wanted func(metav1.APIResource) bool) Result {
	failing := failingVersions(err)
	if !showsNamespaces(lists) {
		failing, err = withoutCore(err, failing)
	}
	res := Result{Sent: sent, Err: err, Failing: failing, versions: map[schema.GroupResource][]string{}}
	found := map[schema.GroupResource][]Type{}
	var unparsable []error
	for _, list := range sortByPreference(lists, groups) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			unparsable = append(unparsable, fmt.Errorf("group version %q: %w", list.GroupVersion, err))
			continue
		}
		for _, api := range list.APIResources {
			if !strings.Contains(api.Name, "/") && wanted(api) {
				t := typeOf(gv, api)
				found[t.GroupResource()] = append(found[t.GroupResource()], t)
			}
		}
	}
	if _, ok := found[schema.GroupResource{Resource: "events"}]; ok { // stored once, and served by two groups
		delete(found, schema.GroupResource{Group: "events.k8s.io", Resource: "events"})
	}
	for r, served := range found {
		res.Types = append(res.Types, served[0])
		for _, t := range served {
			res.versions[r] = append(res.versions[r], t.Version)
		}
	}
	slices.SortFunc(res.Types, func(a, b Type) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(unparsable, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	res.ParseErr = errors.Join(unparsable...)
	return res
}

// errNoNamespaces means that the core API is missing. The client takes a 404 for an API without core types, and an
// aggregated document may lack them.
var errNoNamespaces = errors.New("discovery shows no namespaces: the core API is missing from it")

// withoutCore adds the missing core API to the failures. If err names no group version, any type may be missing.
func withoutCore(err error, failing []Failure) ([]Failure, error) {
	core := func(f Failure) bool { return f.GroupVersion == corev1.SchemeGroupVersion }
	switch {
	case err == nil:
		return nil, errNoNamespaces
	case len(failing) == 0, slices.ContainsFunc(failing, core):
		return failing, err
	}
	return append([]Failure{{corev1.SchemeGroupVersion, errNoNamespaces}}, failing...), errors.Join(err, errNoNamespaces)
}

func showsNamespaces(lists []*metav1.APIResourceList) bool {
	return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
		return list.GroupVersion == corev1.SchemeGroupVersion.String() &&
			slices.ContainsFunc(list.APIResources, func(api metav1.APIResource) bool { return api.Name == "namespaces" })
	})
}

func typeOf(gv schema.GroupVersion, api metav1.APIResource) Type {
	has := func(verb string) bool { return slices.Contains(api.Verbs, verb) }
	return Type{
		GroupVersionResource: gv.WithResource(api.Name), Kind: api.Kind, Namespaced: api.Namespaced,
		List: has("list"), Delete: has("delete"), DeleteCollection: has("deletecollection"), Watch: has("watch"),
	}
}

// sortByPreference returns the lists with the preferred version of each group first. Further versions keep the order of
// the server. Versions that no group names come last.
func sortByPreference(lists []*metav1.APIResourceList, groups []*metav1.APIGroup) []*metav1.APIResourceList {
	ranks := map[string]int{} // negative
	for _, g := range groups {
		versions := append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...)
		for i, v := range versions {
			ranks[v.GroupVersion] = min(ranks[v.GroupVersion], i-len(versions))
		}
	}
	return slices.SortedFunc(slices.Values(lists), func(a, b *metav1.APIResourceList) int {
		return cmp.Or(cmp.Compare(ranks[a.GroupVersion], ranks[b.GroupVersion]), strings.Compare(a.GroupVersion, b.GroupVersion))
	})
}

func failingVersions(err error) []Failure {
	var failing []Failure
	groups, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for gv, err := range groups {
		failing = append(failing, Failure{gv, err})
	}
	slices.SortFunc(failing, func(a, b Failure) int { return strings.Compare(a.APIService(), b.APIService()) })
	return failing
}
