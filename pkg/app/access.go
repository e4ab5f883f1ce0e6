package app

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// right is one verb on one thing.
type right struct {
	verb        string
	group       string
	resource    string // with a slash before a subresource
	namespace   string // empty: in all
	name        string // empty: any
	nonResource string // a path instead of the four above
}

// access is one thing with all that has to be done to it.
type access struct {
	group       string
	resource    string
	namespace   string
	name        string
	nonResource string
	verbs       []string
	without     string // what does not work when one of the verbs is refused
}

// controllerAccess is what a controller needs to be allowed: what deploy/ grants, and no more than the upstream role of the same name.
type controllerAccess struct {
	watched []access // what it has caches of, without verbs: all controllers share them, so this process asks
	own     []access // what it asks for itself
}

// The types there are caches of. The Leases among them depend on the configuration, see [watchedLeases].
var (
	watchPods        = access{resource: "pods"}
	watchNodes       = access{resource: "nodes"}
	watchNamespaces  = access{resource: "namespaces"}
	watchReplicaSets = access{group: "apps", resource: "replicasets"}
)

var (
	replicaSetAccess = controllerAccess{
		watched: []access{watchReplicaSets, watchPods, watchNamespaces},
		own: []access{
			{group: "apps", resource: "replicasets", verbs: []string{"get"}, without: "cannot adopt or release pods or write the first time in a term"},
			{group: "apps", resource: "replicasets", verbs: []string{"list"}, without: "reads the pods of every ReplicaSet live in each term"},
			{group: "apps", resource: "replicasets/status", verbs: []string{"update"}, without: "cannot tell how many pods there are"},
			{group: "apps", resource: "replicasets/finalizers", verbs: []string{"update"}, without: "cannot create pods that keep their owner"}, // blockOwnerDeletion
			{resource: "pods", verbs: []string{"list"}, without: "cannot write the first time in a term or after a lost answer"},
			{resource: "pods", verbs: []string{"create"}, without: "cannot create pods"},
			{resource: "pods", verbs: []string{"patch"}, without: "cannot adopt or release pods"},
			{resource: "pods", verbs: []string{"delete"}, without: "cannot delete pods"},
		},
	}
	nodeLifecycleAccess = controllerAccess{
		watched: []access{watchNodes, watchPods},
		own: []access{
			{resource: "nodes", verbs: []string{"get"}, without: "cannot find a silent node"},
			{resource: "nodes", verbs: []string{"list"}, without: "cannot taint a node NoExecute"},
			{resource: "nodes", verbs: []string{"patch"}, without: "cannot taint nodes"},
			{resource: "nodes/status", verbs: []string{"update"}, without: "cannot find a silent node"},
			{resource: "pods/status", verbs: []string{"patch"}, without: "cannot take the pods of a silent node out of their Services"},
			{group: "coordination.k8s.io", resource: "leases", namespace: corev1.NamespaceNodeLease, verbs: []string{"get", "list"}, without: "cannot find a silent node"},
		},
	}
	taintEvictionAccess = controllerAccess{
		watched: []access{watchNodes, watchPods},
		own: []access{
			{resource: "nodes", verbs: []string{"get"}, without: "cannot evict pods"},
			{resource: "pods", verbs: []string{"get", "delete"}, without: "cannot evict pods"},
			{resource: "pods/status", verbs: []string{"patch"}, without: "cannot evict pods"},
			{group: "coordination.k8s.io", resource: "leases", namespace: corev1.NamespaceNodeLease, verbs: []string{"get"}, without: "cannot evict pods from unreachable nodes"},
		},
	}
	podGCAccess = controllerAccess{
		watched: []access{watchNodes, watchPods},
		own: []access{
			{resource: "nodes", verbs: []string{"get"}, without: "cannot remove the pods of a node that is gone or out of service"},
			{resource: "pods", verbs: []string{"list", "delete"}, without: "cannot remove pods"},
			{resource: "pods/status", verbs: []string{"patch"}, without: "cannot remove pods that have not ended"},
		},
	}
	namespaceAccess = controllerAccess{
		watched: []access{watchNamespaces, watchPods},
		own: []access{
			{resource: "namespaces", verbs: []string{"get"}, without: "cannot empty namespaces"},
			{resource: "namespaces/status", verbs: []string{"update"}, without: "cannot tell what holds a namespace up"},
			{resource: "namespaces/finalize", verbs: []string{"update"}, without: "cannot let namespaces go"},
			{group: "*", resource: "*", verbs: []string{"list", "delete", "deletecollection"}, without: "cannot empty namespaces"},
			{group: "*", resource: "*", verbs: []string{"watch"}, without: "looks again at what remains by time only"},
			{nonResource: "/api", verbs: []string{"get"}, without: "cannot tell what types there are"},
			{nonResource: "/apis", verbs: []string{"get"}, without: "cannot tell what types there are"},
		},
	}
)

// asker is who asks the API server for things, and what for.
type asker struct {
	account string // a service account of kube-system; empty: this process
	needs   []need // each right once
}

// need is a right and what does not work without it.
type need struct {
	right
	without []string
}

// required lists what has to be allowed with this configuration, and to whom: to this process, and to each account that controllers use
// instead of its identity.
func required(cfg Config) []asker {
	ids := []asker{{}}
	add := func(account string, a access) {
		i := slices.IndexFunc(ids, func(id asker) bool { return id.account == account })
		if i < 0 {
			i, ids = len(ids), append(ids, asker{account: account})
		}
		ids[i].add(a)
	}
	add("", access{resource: "events", verbs: []string{"create"}, without: "no events are told"})
	add("", access{resource: "events", verbs: []string{"patch"}, without: "events that happen again are not counted"})
	if e := cfg.Election; e.Enabled {
		lease := access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, without: "nobody leads"}
		lease.verbs = []string{"create"}
		add("", lease)
		lease.name, lease.verbs = e.Name, []string{"get", "update"}
		add("", lease)
	}
	for _, a := range watchedLeases(cfg) {
		add("", a.watched())
	}
	for _, c := range cfg.Controllers {
		for _, a := range needs[c.Name].watched {
			add("", a.watched())
		}
		account := ""
		if cfg.ServiceAccounts { // to make the account itself is needed only if nobody has
			account = c.Agent
			add("", access{
				resource: "serviceaccounts/token", namespace: metav1.NamespaceSystem, name: account, verbs: []string{"create"},
				without: c.Name + " can do nothing",
			})
		}
		for _, a := range needs[c.Name].own {
			a.without = c.Name + " " + a.without
			add(account, a)
		}
	}
	return ids
}

// watchedLeases are the Leases that a cache holds: if they are of more than one namespace, all.
func watchedLeases(cfg Config) []access {
	namespaces := leaseNamespaces(cfg)
	switch leases := (access{group: "coordination.k8s.io", resource: "leases"}); len(namespaces) {
	case 0:
		return nil
	case 1:
		leases.namespace = namespaces[0]
		return []access{leases}
	default:
		return []access{leases}
	}
}

// watched is what a cache of the type needs. While one cache is empty nobody leads.
func (a access) watched() access {
	a.verbs, a.without = []string{"list", "watch"}, "no controller starts"
	return a
}

// add takes the rights in, those it has already with one more reason.
func (id *asker) add(a access) {
	for _, verb := range a.verbs {
		r := right{verb: verb, group: a.group, resource: a.resource, namespace: a.namespace, name: a.name, nonResource: a.nonResource}
		i := slices.IndexFunc(id.needs, func(n need) bool { return n.right == r })
		if i < 0 {
			i, id.needs = len(id.needs), append(id.needs, need{right: r})
		}
		if !slices.Contains(id.needs[i].without, a.without) {
			id.needs[i].without = append(id.needs[i].without, a.without)
		}
	}
}

// String is how kubectl would call it: verb resource.group/subresource.
func (r right) String() string {
	if r.nonResource != "" {
		return r.verb + " " + r.nonResource
	}
	resource, sub, isSub := strings.Cut(r.resource, "/")
	s := r.verb + " " + resource
	if r.group != "" {
		s += "." + r.group
	}
	if isSub {
		s += "/" + sub
	}
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

// attributes are what the API server is asked about, one of them nil.
func (r right) attributes() (*authorizationv1.ResourceAttributes, *authorizationv1.NonResourceAttributes) {
	if r.nonResource != "" {
		return nil, &authorizationv1.NonResourceAttributes{Path: r.nonResource, Verb: r.verb}
	}
	resource, sub, _ := strings.Cut(r.resource, "/")
	return &authorizationv1.ResourceAttributes{
		Group: r.group, Resource: resource, Subresource: sub, Verb: r.verb, Namespace: r.namespace, Name: r.name,
	}, nil
}
