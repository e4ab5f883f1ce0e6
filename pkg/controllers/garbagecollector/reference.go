package garbagecollector

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiType is a discovered type.
type apiType struct {
	schema.GroupVersionResource // preferred version
	kind                        string
	namespaced                  bool
	versions                    []string // served versions
	// local types are served by the API server itself, from one storage for all versions and with preconditions.
	local   bool
	watched bool
}

func (t apiType) objectType() objectType { return objectType{t.GroupResource(), t.kind, t.local} }

// catalogue is the result of a discovery.
type catalogue struct {
	sent    time.Time // zero before the first discovery
	kinds   map[schema.GroupKind][]apiType
	failing map[string]bool // groups with versions that failed
}

func newCatalogue(sent time.Time, failing []string, all ...apiType) catalogue {
	c := catalogue{sent: sent, kinds: map[schema.GroupKind][]apiType{}, failing: map[string]bool{}}
	for _, group := range failing {
		c.failing[group] = true
	}
	for _, t := range all {
		kind := schema.GroupKind{Group: t.Group, Kind: t.kind}
		c.kinds[kind] = append(c.kinds[kind], t)
	}
	return c
}

// problem is the reason for which the owner of a reference cannot be read. Such an owner is unknown, so that its
// dependents stay. An impossible name is the exception: there is no such owner.
type problem string

const (
	fine         problem = ""
	unparsable   problem = "unparsable_version"
	outOfReach   problem = "scope"            // namespaced owner of a cluster-scoped dependent
	undiscovered problem = "undiscovered"     // discovery of the group has failed
	unserved     problem = "unknown_kind"     // the group lacks the kind
	otherVersion problem = "unserved_version" // the version may have other objects, because the type is not local
	ambiguous    problem = "ambiguous_kind"   // several types have the kind
	impossible   problem = "impossible_name"  // a local type cannot have a name with a slash
	unusable     problem = "unusable_name"    // an aggregated API server may allow such a name
)

// target is the place of the owner of a reference.
type target struct {
	schema.GroupVersionResource
	namespace, name string
	local           bool
}

// resolve returns the place of the owner of a reference. The namespace is that of the dependent.
func (c catalogue) resolve(r reference, namespace string) (target, problem) {
	gv, err := schema.ParseGroupVersion(r.apiVersion)
	if err != nil || gv.Version == "" {
		return target{}, unparsable
	}
	found := c.kinds[gv.WithKind(r.kind).GroupKind()]
	switch {
	case c.sent.IsZero():
		return target{}, undiscovered
	case len(found) == 0 && c.failing[gv.Group]:
		return target{}, undiscovered
	case len(found) == 0:
		return target{}, unserved
	case len(found) > 1:
		return target{}, ambiguous
	}
	t := found[0]
	at := target{GroupVersionResource: t.GroupVersionResource, name: r.name, local: t.local}
	if !t.local { // versions may have different objects
		if !slices.Contains(t.versions, gv.Version) {
			return target{}, otherVersion
		}
		at.Version = gv.Version
	}
	if t.namespaced {
		at.namespace = namespace
	}
	switch named := len(content.IsPathSegmentName(r.name)) == 0; {
	case t.namespaced && namespace == "":
		return target{}, outOfReach
	case !named && t.local:
		return target{}, impossible
	case !named:
		return target{}, unusable
	}
	return at, fine
}

// invalidNamespace returns the text of the event OwnerRefInvalidNamespace of kube-controller-manager v1.37.
func invalidNamespace(r reference, namespace string) string {
	return fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		r.apiVersion, r.kind, namespace, r.name, r.uid, namespace)
}
