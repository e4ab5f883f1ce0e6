package app

import (
	"fmt"
	"slices"
	"strings"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/deployment"
	"minikcm/pkg/controllers/endpointslice"
	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/pkg/controllers/tainteviction"
)

// Controllers returns all controllers, in start order, with their default configurations.
func Controllers() []controller.Registration {
	nodes := node.DefaultConfig()
	return []controller.Registration{
		replicaset.Registration(replicaset.DefaultConfig()),
		node.Registration(nodes),
		tainteviction.Registration(&nodes.MonitorGracePeriod),
		podgc.Registration(podgc.DefaultConfig()),
		namespace.Registration(namespace.DefaultConfig()),
		endpointslice.Registration(endpointslice.DefaultConfig()),
		deployment.Registration(deployment.DefaultConfig()),
		garbagecollector.Registration(garbagecollector.DefaultConfig()),
	}
}

// ControllersNamed returns the [Controllers] that these items of --controllers enable, in start order.
func ControllersNamed(items ...string) ([]controller.Registration, error) {
	all := Controllers()
	if unknown := unknownItems(all, items); len(unknown) > 0 {
		return nil, fmt.Errorf("%s; known are %s", strings.Join(unknown, ", "), namesWithAliases(all))
	}
	return slices.DeleteFunc(all, func(c controller.Registration) bool { return !isEnabled(c, items) }), nil
}

func hasName(c controller.Registration, name string) bool {
	return name == c.Name || name == c.Alias && c.Alias != ""
}

func controllerNames(controllers []controller.Registration) []string {
	out := make([]string, 0, len(controllers))
	for _, c := range controllers {
		out = append(out, c.Name)
	}
	return out
}

// namesWithAliases returns "name (alias), name" for messages.
func namesWithAliases(controllers []controller.Registration) string {
	out := controllerNames(controllers)
	for i, c := range controllers {
		if c.Alias != "" {
			out[i] += " (" + c.Alias + ")"
		}
	}
	return strings.Join(out, ", ")
}

// isEnabled reports whether the items of --controllers enable a controller. The first item that names the
// controller decides. If no item names the controller, * enables it.
func isEnabled(c controller.Registration, items []string) bool {
	for _, item := range items {
		if name, off := strings.CutPrefix(item, "-"); hasName(c, name) {
			return !off
		}
	}
	return slices.Contains(items, "*")
}

// unknownItems returns a message for each item of --controllers that names no controller.
func unknownItems(controllers []controller.Registration, items []string) (messages []string) {
	for _, item := range items {
		name := strings.TrimPrefix(item, "-")
		if item != "*" && !slices.ContainsFunc(controllers, func(c controller.Registration) bool { return hasName(c, name) }) {
			messages = append(messages, fmt.Sprintf("%q is not in the list of known controllers", name))
		}
	}
	return messages
}
