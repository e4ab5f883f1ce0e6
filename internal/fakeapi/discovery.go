package fakeapi

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery is an uncached discovery client with prepared responses.
type Discovery struct {
	Readyz
	Groups []*metav1.APIGroup
	Lists  []*metav1.APIResourceList
	Err    error
	Takes  time.Duration // before each response
	Called func()        // at the start of each discovery; may be nil
	count  atomic.Int32
}

// ServerGroupsAndResourcesWithContext returns the prepared response.
func (d *Discovery) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.count.Add(1)
	if d.Called != nil {
		d.Called()
	}
	select {
	case <-time.After(d.Takes):
		return d.Groups, d.Lists, d.Err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// Count returns the number of discoveries.
func (d *Discovery) Count() int { return int(d.count.Load()) }

// APIGroup returns a group with versions, the preferred version first.
func APIGroup(name string, versions ...string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: name, Version: v}
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// APIList returns the types of a group version.
func APIList(groupVersion string, types ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: types}
}

// CoreList returns the core types of every complete discovery, with further types.
func CoreList(types ...metav1.APIResource) *metav1.APIResourceList {
	return APIList("v1", append(types, metav1.APIResource{Name: "namespaces", Verbs: []string{"delete", "list"}})...)
}

// APIType returns a namespaced type with verbs. The kind is the name in upper case.
func APIType(name string, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: strings.ToUpper(name), Namespaced: true, Verbs: verbs}
}
