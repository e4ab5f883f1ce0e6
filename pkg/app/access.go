package app

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// required lists what the process must be allowed to do with this configuration.
func required(cfg Config) []access {
	needs := []access{{resource: "events", verbs: []string{"create", "patch"}}}
	if e := cfg.Election; e.Enabled {
		needs = append(needs,
			access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, verbs: []string{"create"}},
			access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, name: e.Name, verbs: []string{"get", "update"}},
		)
		if watchesLease(cfg) {
			needs = append(needs, access{group: "coordination.k8s.io", resource: "leases", namespace: e.Namespace, verbs: []string{"list", "watch"}})
		}
	}
	for _, d := range controllers {
		if !slices.Contains(cfg.Controllers, d.name) {
			continue
		}
		for _, need := range d.needs {
			if cfg.ServiceAccounts {
				need = need.watching()
			}
			needs = append(needs, need)
		}
		if cfg.ServiceAccounts { // to make the account itself is needed only if nobody has
			needs = append(needs, access{resource: "serviceaccounts/token", namespace: metav1.NamespaceSystem, name: d.agent, verbs: []string{"create"}})
		}
	}
	return merged(needs)
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
