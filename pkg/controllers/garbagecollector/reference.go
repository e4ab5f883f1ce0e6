package garbagecollector

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiType is a type as discovery shows it.
type apiType struct {
	schema.GroupVersionResource // in the version that the API server prefers
	kind                        string
	namespaced                  bool
	versions                    []string // of its group in which it is served
	// local: the API server itself serves it, from one storage for all versions, and keeps to preconditions.
	local   bool
	watched bool // it has a feed
}

func (t apiType) objectType() objectType { return objectType{t.GroupResource(), t.kind, t.local} }

// catalogue is what discovery showed.
type catalogue struct {
	sent    time.Time // when it was asked for; zero: never
	kinds   map[schema.GroupKind][]apiType
	failing map[string]bool // groups of which some version could not be discovered
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

// problem is why nobody can be asked whether the owner of a reference exists. As long as there is one, the owner counts as unknown, and
// nothing is deleted on its account.
type problem string

const (
	fine         problem = ""
	unparsable   problem = "unparsable_version" // the apiVersion is none
	outOfReach   problem = "scope"              // the kind lives in namespaces, and the dependent in none
	undiscovered problem = "undiscovered"       // the API server cannot tell, at the moment, what there is in the group
	unserved     problem = "unknown_kind"       // the group has no such kind
	otherVersion problem = "unserved_version"   // the kind is there, but not in this version, and who knows whether its objects are the same
	ambiguous    problem = "ambiguous_kind"     // several types are of this kind
	impossible   problem = "impossible_name"    // the API server has no objects of such a name, which would be another path; so there is no owner
	unusable     problem = "unusable_name"      // as that, of a type of another server: who knows what that allows
)

// target is where the owner is that a reference names, if it exists.
type target struct {
	schema.GroupVersionResource
	namespace, name string
	local           bool
}

// heardFor is how long the feed of its type has been able to witness that an owner is not there, as its standing says; 0: it is not. What another
// server shows in a list and to one who asks may be equally old.
func (t target) heardFor(s standing, now time.Time) time.Duration {
	if !t.local {
		return 0
	}
	return s.currentFor(now)
}

// resolve says where to ask for the owner that an object in a namespace refers to; empty: one in no namespace.
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
	if !t.local { // its versions may be different things
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

// lacks reports whether discovery has shown, to somebody who asked after a moment, that the group is all there and has no such kind.
func (c catalogue) lacks(r reference, after time.Time) bool {
	_, p := c.resolve(r, "any")
	return p == unserved && c.sent.After(after)
}

// invalidNamespace is the text of the event OwnerRefInvalidNamespace, as kube-controller-manager v1.37 words it.
func invalidNamespace(r reference, namespace string) string {
	return fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		r.apiVersion, r.kind, namespace, r.name, r.uid, namespace)
}
