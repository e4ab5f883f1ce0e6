package app

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controller"
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

// asker is who asks the API server for things, and what for.
type asker struct {
	account string // a service account of kube-system; empty: this process
	needs   []need // each right once
}

// need is a right and what does not work without it.
type need struct {
	right
	without  []string
	optional bool // all that does not work without it is told, and nothing else happens
}

// reading are the verbs that change nothing.
var reading = []string{"get", "list", "watch"}

// required lists what has to be allowed with this configuration, and to whom: to this process, and to each account that controllers use
// instead of its identity.
func required(cfg Config) []asker {
	ids := []asker{{}}
	add := func(account string, a controller.Access) {
		i := slices.IndexFunc(ids, func(id asker) bool { return id.account == account })
		if i < 0 {
			i, ids = len(ids), append(ids, asker{account: account})
		}
		ids[i].add(a)
	}
	add("", controller.Access{Resource: "events", Verbs: []string{"create"}, Impact: "no events are told"})
	add("", controller.Access{Resource: "events", Verbs: []string{"patch"}, Impact: "events that happen again are not counted"})
	if e := cfg.Election; e.Enabled {
		lease := controller.Access{Group: "coordination.k8s.io", Resource: "leases", Namespace: e.Namespace, Impact: "nobody leads"}
		lease.Verbs = []string{"create"}
		add("", lease)
		lease.Name, lease.Verbs = e.Name, []string{"get", "update"}
		add("", lease)
	}
	for _, a := range cfg.Needs {
		add("", a)
	}
	for _, a := range watchedLeases(cfg) {
		add("", watched(a))
	}
	for _, c := range cfg.Controllers {
		for _, a := range c.WatchPermissions {
			add("", watched(a))
		}
		account := ""
		if cfg.ServiceAccounts { // to make the account itself is needed only if nobody has
			account = c.Agent
			add("", controller.Access{
				Resource: "serviceaccounts/token", Namespace: metav1.NamespaceSystem, Name: account, Verbs: []string{"create"},
				Impact: c.Name + " can do nothing",
			})
		}
		for _, a := range c.Permissions {
			a.Impact = c.Name + " " + a.Impact
			if c.ReadOnly != nil && c.ReadOnly() {
				a.Verbs = slices.DeleteFunc(slices.Clone(a.Verbs), func(verb string) bool { return !slices.Contains(reading, verb) })
			}
			add(account, a)
		}
	}
	return ids
}

// watchedLeases are the Leases that a cache holds: if they are of more than one namespace, all.
func watchedLeases(cfg Config) []controller.Access {
	namespaces := leaseNamespaces(cfg)
	switch leases := (controller.Access{Group: "coordination.k8s.io", Resource: "leases"}); len(namespaces) {
	case 0:
		return nil
	case 1:
		leases.Namespace = namespaces[0]
		return []controller.Access{leases}
	default:
		return []controller.Access{leases}
	}
}

// watched is what a cache of the type needs. While one cache is empty nobody leads.
func watched(a controller.Access) controller.Access {
	a.Verbs, a.Impact = []string{"list", "watch"}, "no controller starts"
	return a
}

// add takes the rights in, those it has already with one more reason.
func (id *asker) add(a controller.Access) {
	for _, verb := range a.Verbs {
		r := right{verb: verb, group: a.Group, resource: a.Resource, namespace: a.Namespace, name: a.Name, nonResource: a.NonResource}
		i := slices.IndexFunc(id.needs, func(n need) bool { return n.right == r })
		if i < 0 {
			i, id.needs = len(id.needs), append(id.needs, need{right: r, optional: true})
		}
		id.needs[i].optional = id.needs[i].optional && a.Optional
		if !slices.Contains(id.needs[i].without, a.Impact) {
			id.needs[i].without = append(id.needs[i].without, a.Impact)
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
