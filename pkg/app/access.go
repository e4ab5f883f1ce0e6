package app

import "slices"

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
		if slices.Contains(cfg.Controllers, d.name) {
			needs = append(needs, d.needs...)
		}
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
