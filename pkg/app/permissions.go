package app

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controller"
)

// permission is one verb on one resource, or on a path.
type permission struct {
	authorizationv1.ResourceAttributes
	path string // excludes the attributes other than Verb
}

// need is a permission that this process or a service account needs.
type need struct {
	account string // of kube-system; empty means this process
	permission
	controllers []string // names; empty for a need of the manager itself
	impacts     []string // what does not work without the permission
	optional    bool
}

// requiredPermissions returns the permissions that a configuration needs, each once per account and ordered
// by account. The permissions of this process come first.
func requiredPermissions(cfg Config) []need {
	var needs []need
	var by []string // the controller whose permissions are added
	add := func(account string, a controller.Access) {
		resource, sub, _ := strings.Cut(a.Resource, "/")
		for _, verb := range a.Verbs {
			p := permission{path: a.NonResource, ResourceAttributes: authorizationv1.ResourceAttributes{
				Verb: verb, Group: a.Group, Resource: resource, Subresource: sub, Namespace: a.Namespace, Name: a.Name,
			}}
			i := slices.IndexFunc(needs, func(n need) bool { return n.account == account && n.permission == p })
			if i < 0 {
				i, needs = len(needs), append(needs, need{account: account, permission: p, optional: true})
			}
			needs[i].optional = needs[i].optional && a.Optional
			needs[i].controllers = append(needs[i].controllers, by...)
			if !slices.Contains(needs[i].impacts, a.Impact) {
				needs[i].impacts = append(needs[i].impacts, a.Impact)
			}
		}
	}
	watch := func(a controller.Access) {
		a.Verbs, a.Impact = []string{"list", "watch"}, "no controller starts"
		add("", a)
	}
	add("", controller.Access{Resource: "events", Verbs: []string{"create", "patch"}, Impact: "events are not sent or not counted"})
	leases := controller.Access{Group: "coordination.k8s.io", Resource: "leases", Impact: "no replica leads"}
	if namespaces := leaseNamespaces(cfg); len(namespaces) == 1 {
		// Otherwise the cache covers all namespaces. With FollowsOwners the cache covers all namespaces, too; the
		// controller's own list and watch of *.* is reviewed then.
		leases.Namespace = namespaces[0]
	}
	if e := cfg.Election; e.Enabled {
		lease := leases
		lease.Namespace, lease.Verbs = e.Namespace, []string{"create"}
		add("", lease)
		lease.Name, lease.Verbs = e.Name, []string{"get", "update"}
		add("", lease)
		watch(leases)
	}
	for _, a := range cfg.Permissions {
		add("", a)
	}
	for _, c := range cfg.Controllers {
		by = []string{c.Name}
		if len(c.LeaseNamespaces) > 0 {
			watch(leases)
		}
		for _, a := range c.WatchPermissions {
			watch(a)
		}
		account := ""
		if cfg.ServiceAccounts { // the permission to create a missing account is not checked
			account = c.Agent
			add("", controller.Access{Resource: "serviceaccounts/token", Namespace: metav1.NamespaceSystem,
				Name: account, Verbs: []string{"create"}, Impact: c.Name + " can do nothing"})
		}
		for _, a := range c.Permissions {
			a.Impact = c.Name + " " + a.Impact
			if c.ReadOnly != nil && c.ReadOnly() {
				a.Verbs = slices.DeleteFunc(slices.Clone(a.Verbs), func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			}
			add(account, a)
		}
	}
	slices.SortStableFunc(needs, func(a, b need) int { return strings.Compare(a.account, b.account) })
	return needs
}

// String returns the permission in the terms of kubectl: verb resource.group/subresource.
func (p permission) String() string {
	s := p.Verb + " " + p.path + p.Resource
	for _, part := range [][2]string{{".", p.Group}, {"/", p.Subresource}, {" ", p.Name}, {" in ", p.Namespace}} {
		if part[1] != "" {
			s += part[0] + part[1]
		}
	}
	return s
}
