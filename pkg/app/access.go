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
			if cfg.ServiceAccounts { // what they write is theirs, what is watched is ours
				need.verbs = slices.DeleteFunc(slices.Clone(need.verbs), func(verb string) bool { return verb != "list" && verb != "watch" })
			}
			needs = append(needs, need)
		}
	}
	if cfg.ServiceAccounts {
		needs = append(needs,
			access{resource: "serviceaccounts", namespace: metav1.NamespaceSystem, verbs: []string{"create"}},
			access{resource: "serviceaccounts/token", namespace: metav1.NamespaceSystem, verbs: []string{"create"}},
		)
	}
	return merged(needs)
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
