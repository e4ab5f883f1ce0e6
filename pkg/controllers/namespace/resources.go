package namespace

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

// resource is a type of namespaced objects that can be deleted, in the version chosen for it.
type resource struct {
	schema.GroupVersionResource
	list, deleteCollection, watch bool // verbs it has besides delete
}

// String is the name used for a type in errors, conditions and events.
func (r resource) String() string { return r.GroupResource().String() }

// podResource is what pods are before any discovery.
var podResource = resource{corev1.SchemeGroupVersion.WithResource("pods"), true, true, true}

// sameObjects are types whose objects are also served, and stored, as another type.
var sameObjects = map[schema.GroupResource]schema.GroupResource{
	{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
}

// content is what may exist in a namespace, as discovery told.
type content struct {
	sent      time.Time // when the request was sent, by our clock
	resources []resource
	err       error       // of the discovery, nil if every group version answered
	failing   []apiFailed // group versions that did not, sorted
	parseErr  error       // group versions whose names make no sense
}

// apiFailed is a group version that cannot be discovered.
type apiFailed struct {
	version schema.GroupVersion
	err     error
}

// service is the name of the APIService that serves the group version.
func (f apiFailed) service() string { return f.version.Version + "." + f.version.Group }

// complete reports whether resources are certainly all there are.
func (c content) complete() bool { return !c.sent.IsZero() && c.err == nil && c.parseErr == nil }

// has reports whether the type was discovered, in whatever version.
func (c content) has(r resource) bool {
	return slices.ContainsFunc(c.resources, func(other resource) bool { return other.GroupResource() == r.GroupResource() })
}

// others are the discovered types without pods.
func (c content) others() []resource {
	return slices.DeleteFunc(slices.Clone(c.resources), func(r resource) bool {
		return r.GroupResource() == podResource.GroupResource()
	})
}

// selectContent picks from the answer of a discovery every type whose objects live in namespaces and can be deleted, each
// once: in the version the server prefers, or in the first other one that can delete it.
func selectContent(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, err error, sent time.Time) content {
	if err == nil && !showsNamespaces(lists) {
		err = errNoNamespaces
	}
	c := content{sent: sent, err: err}
	ranks := versionRanks(groups)
	chosen := map[schema.GroupResource]resource{}
	var unparsable []error
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			unparsable = append(unparsable, fmt.Errorf("group version %q: %w", list.GroupVersion, err))
			continue
		}
		for _, api := range list.APIResources {
			if !deletable(api) {
				continue
			}
			r := asResource(gv, api)
			if other, ok := chosen[r.GroupResource()]; !ok || ranks.less(gv, other.GroupVersion()) {
				chosen[r.GroupResource()] = r
			}
		}
	}
	for twin, original := range sameObjects {
		if _, ok := chosen[original]; ok {
			delete(chosen, twin)
		}
	}
	for _, r := range chosen {
		c.resources = append(c.resources, r)
	}
	slices.SortFunc(c.resources, func(a, b resource) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(unparsable, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	c.parseErr = errors.Join(unparsable...)
	c.failing = failingVersions(err)
	return c
}

// errNoNamespaces: the client takes an answer of 404 for an API without core types, and a document may have lost them. A server that has
// namespaces, as ours does, shows them.
var errNoNamespaces = errors.New("discovery shows no namespaces: the core API is missing from it")

func showsNamespaces(lists []*metav1.APIResourceList) bool {
	return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
		return list.GroupVersion == corev1.SchemeGroupVersion.String() &&
			slices.ContainsFunc(list.APIResources, func(api metav1.APIResource) bool { return api.Name == "namespaces" })
	})
}

func deletable(api metav1.APIResource) bool {
	return api.Namespaced && !strings.Contains(api.Name, "/") && slices.Contains(api.Verbs, "delete")
}

func asResource(gv schema.GroupVersion, api metav1.APIResource) resource {
	return resource{
		GroupVersionResource: gv.WithResource(api.Name),
		list:                 slices.Contains(api.Verbs, "list"),
		deleteCollection:     slices.Contains(api.Verbs, "deletecollection"),
		watch:                slices.Contains(api.Verbs, "watch"),
	}
}

// ranks orders the versions of a group: 0 is the preferred one, the others follow in the order the server names them.
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

func (r ranks) less(a, b schema.GroupVersion) bool {
	return cmp.Or(cmp.Compare(r.of(a), r.of(b)), strings.Compare(a.String(), b.String())) < 0
}

func (r ranks) of(gv schema.GroupVersion) int {
	if rank, ok := r[gv]; ok {
		return rank
	}
	return len(r) + 1
}

func failingVersions(err error) []apiFailed {
	var failing []apiFailed
	groups, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for gv, err := range groups {
		failing = append(failing, apiFailed{gv, err})
	}
	slices.SortFunc(failing, func(a, b apiFailed) int { return strings.Compare(a.service(), b.service()) })
	return failing
}
