package app

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// access is one thing, or one per verb, that this process must be allowed to do.
type access struct {
	group       string
	resource    string // with a slash before a subresource
	namespace   string // empty: in all
	name        string // empty: any
	nonResource string // a path instead of the above
	verbs       []string
}

// The rights of each controller: what it watches and what it writes. They are no more than those of the upstream role of the same
// name, and what deploy/ grants.
var (
	replicaSetNeeds = []access{
		{group: "apps", resource: "replicasets", verbs: []string{"get", "list", "watch"}},
		{group: "apps", resource: "replicasets/status", verbs: []string{"update"}},
		{group: "apps", resource: "replicasets/finalizers", verbs: []string{"update"}}, // to set blockOwnerDeletion
		{resource: "pods", verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{resource: "namespaces", verbs: []string{"list", "watch"}},
	}
	nodeLifecycleNeeds = []access{
		{resource: "nodes", verbs: []string{"get", "list", "watch", "patch"}},
		{resource: "nodes/status", verbs: []string{"update"}},
		{resource: "pods", verbs: []string{"list", "watch"}},
		{resource: "pods/status", verbs: []string{"patch"}},
		{group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "list", "watch"}},
	}
	taintEvictionNeeds = []access{
		{resource: "nodes", verbs: []string{"get", "list", "watch"}},
		{resource: "pods", verbs: []string{"get", "list", "watch", "delete"}},
		{resource: "pods/status", verbs: []string{"patch"}},
		{group: "coordination.k8s.io", resource: "leases", namespace: corev1.NamespaceNodeLease, verbs: []string{"get"}},
	}
	podGCNeeds = []access{
		{resource: "nodes", verbs: []string{"get", "list", "watch"}},
		{resource: "pods", verbs: []string{"list", "watch", "delete"}},
		{resource: "pods/status", verbs: []string{"patch"}},
	}
	namespaceNeeds = []access{
		{resource: "namespaces", verbs: []string{"get", "list", "watch"}},
		{resource: "namespaces/status", verbs: []string{"update"}},
		{resource: "namespaces/finalize", verbs: []string{"update"}},
		{resource: "pods", verbs: []string{"list", "watch"}},
		{group: "*", resource: "*", verbs: []string{"list", "delete", "deletecollection"}},
		{nonResource: "/api", verbs: []string{"get"}},
		{nonResource: "/apis", verbs: []string{"get"}},
	}
)

// required lists what the process must be allowed to do with this configuration.
func required(cfg Config) []access {
	all := []access{{resource: "events", verbs: []string{"create", "patch"}}}
	if e := cfg.Election; e.Enabled {
		all = append(all,
			access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, verbs: []string{"create"}},
			access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, name: e.Name, verbs: []string{"get", "update"}},
		)
		if watchesLease(cfg) {
			all = append(all, access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, verbs: []string{"list", "watch"}})
		}
	}
	for _, c := range cfg.Controllers {
		for _, need := range needs[c.Name] {
			if cfg.ServiceAccounts {
				need = need.watching()
			}
			all = append(all, need)
		}
		if cfg.ServiceAccounts { // to make the account itself is needed only if nobody has
			all = append(all, access{resource: "serviceaccounts/token", namespace: metav1.NamespaceSystem, name: c.Agent, verbs: []string{"create"}})
		}
	}
	return merged(all)
}

// watching is what is left to the identity of this process when the controllers have their own: to watch. What a controller reads
// without watching it, as every type in a namespace, it reads itself.
func (a access) watching() access {
	watches := slices.Contains(a.verbs, "watch")
	a.verbs = slices.DeleteFunc(slices.Clone(a.verbs), func(verb string) bool { return !watches || verb != "list" && verb != "watch" })
	return a
}

// merged joins needs for the same thing, so that nothing is asked twice.
func merged(needs []access) []access {
	var out []access
	for _, need := range needs {
		same := func(a access) bool {
			return a.group == need.group && a.resource == need.resource && a.namespace == need.namespace &&
				a.name == need.name && a.nonResource == need.nonResource
		}
		i := slices.IndexFunc(out, same)
		if i < 0 {
			need.verbs = slices.Clone(need.verbs)
			out = append(out, need)
			continue
		}
		for _, verb := range need.verbs {
			if !slices.Contains(out[i].verbs, verb) {
				out[i].verbs = append(out[i].verbs, verb)
			}
		}
	}
	return out
}

// String is how kubectl would call it: resource.group/subresource.
func (a access) String() string {
	if a.nonResource != "" {
		return a.nonResource
	}
	resource, sub, isSub := strings.Cut(a.resource, "/")
	if a.group != "" {
		resource += "." + a.group
	}
	if isSub {
		resource += "/" + sub
	}
	if a.name != "" {
		resource += " " + a.name
	}
	if a.namespace != "" {
		resource += " in " + a.namespace
	}
	return resource
}

func (a access) spec(verb string) authorizationv1.SelfSubjectAccessReviewSpec {
	if a.nonResource != "" {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: a.nonResource, Verb: verb},
		}
	}
	resource, sub, _ := strings.Cut(a.resource, "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: a.group, Resource: resource, Subresource: sub, Verb: verb, Namespace: a.namespace, Name: a.name,
		},
	}
}
