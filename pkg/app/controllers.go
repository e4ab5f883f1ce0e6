package app

import (
	"fmt"
	"slices"
	"strings"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/deployment"
	"minikcm/pkg/controllers/garbagecollector"
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
		deployment.Registration(deployment.DefaultConfig()),
		garbagecollector.Registration(garbagecollector.DefaultConfig()),
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

// exceptDisabled is for help: which controllers * does not switch on.
func exceptDisabled(controllers []controller.Registration) string {
	var apart []string
	for _, c := range controllers {
		if c.DisabledByDefault {
			apart = append(apart, c.Name)
		}
	}
	if len(apart) == 0 {
		return ""
	}
	return ", " + strings.Join(apart, " and ") + " excepted"
}

// canonical replaces aliases in the items of --controllers by names and keeps a leading minus.
func canonical(items []string, aliases map[string]string) []string {
	out := make([]string, 0, len(items))
	for _, item := range items {
		name, off := strings.CutPrefix(item, "-")
		if full, ok := aliases[name]; ok {
			name = full
		}
		if off {
			name = "-" + name
		}
		out = append(out, name)
	}
	return out
}

// enabled says whether items, which are canonical, switch a controller on. The first item that names it decides; unnamed it is
// on if any item is *, unless it has to be named.
func enabled(c controller.Registration, items []string) bool {
	for _, item := range items {
		switch item {
		case c.Name:
			return true
		case "-" + c.Name:
			return false
		}
	}
	return !c.DisabledByDefault && slices.Contains(items, "*")
}

// unknownControllers reports the items, canonical, that name no controller; nil if all are known.
func unknownControllers(items []string, controllers []controller.Registration) error {
	known := names(controllers)
	var unknown []string
	for _, item := range items {
		name := strings.TrimPrefix(item, "-")
		if item != "*" && !slices.Contains(known, name) {
			unknown = append(unknown, fmt.Sprintf("%q is not in the list of known controllers", name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("--controllers: %s; known are %s", strings.Join(unknown, ", "), strings.Join(namesWithAliases(controllers), ", "))
}
