package app

import (
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/pkg/controllers/tainteviction"
)

// Controllers are all controllers, in start order, with their default configurations.
func Controllers() []controller.Registration {
	nodes := node.DefaultConfig()
	return []controller.Registration{
		replicaset.Registration(replicaset.DefaultConfig()),
		node.Registration(nodes),
		tainteviction.Registration(&nodes.MonitorGracePeriod),
		podgc.Registration(podgc.DefaultConfig()),
		namespace.Registration(namespace.DefaultConfig()),
	}
}

// names are the canonical names, in start order; the slice is the caller's.
func names(controllers []controller.Registration) []string {
	out := make([]string, 0, len(controllers))
	for _, c := range controllers {
		out = append(out, c.Name)
	}
	return out
}

// aliases maps each alias to its canonical name.
func aliases(controllers []controller.Registration) map[string]string {
	out := map[string]string{}
	for _, c := range controllers {
		if c.Alias != "" {
			out[c.Alias] = c.Name
		}
	}
	return out
}

// namesWithAliases is for messages: "name (alias)".
func namesWithAliases(controllers []controller.Registration) []string {
	out := make([]string, 0, len(controllers))
	for _, c := range controllers {
		name := c.Name
		if c.Alias != "" {
			name += " (" + c.Alias + ")"
		}
		out = append(out, name)
	}
	return out
}
