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

// sameObjects maps types to the type under which their objects are stored.
var sameObjects = map[schema.GroupResource]schema.GroupResource{
	{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
}

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
func (res Result) Has(r schema.GroupResource) bool {
	_, ok := slices.BinarySearchFunc(res.Types, r.String(), func(t Type, name string) int { return strings.Compare(t.String(), name) })
	return ok
}

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
	ranks := versionRanks(groups)
	found := map[schema.GroupResource][]Type{}
	var unparsable []error
	for _, list := range lists {
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
	for twin, original := range sameObjects {
		if _, ok := found[original]; ok {
			delete(found, twin)
		}
	}
	for r, served := range found {
		slices.SortStableFunc(served, func(a, b Type) int { return ranks.compareVersions(a.GroupVersion(), b.GroupVersion()) })
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

// ranks orders the versions of a group. The preferred version has rank 0, and further versions keep the order
// of the server.
type ranks map[schema.GroupVersion]int

func versionRanks(groups []*metav1.APIGroup) ranks {
	r := ranks{}
	for _, g := range groups {
		for i, v := range g.Versions {
			r[schema.GroupVersion{Group: g.Name, Version: v.Version}] = i + 1
		}
		r[schema.GroupVersion{Group: g.Name, Version: g.PreferredVersion.Version}] = 0
	}
	return r
}

func (r ranks) compareVersions(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(r.rankOf(a), r.rankOf(b)), strings.Compare(a.String(), b.String()))
}

func (r ranks) rankOf(gv schema.GroupVersion) int {
	if rank, ok := r[gv]; ok {
		return rank
	}
	return len(r) + 1
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
