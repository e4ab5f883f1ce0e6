package app

import (
	"fmt"
	"slices"
	"strings"

	"minikcm/pkg/controller"
)

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

// enabled says whether items, which are canonical, switch name on. The first item that names it decides; unnamed it is
// on if any item is *.
func enabled(name string, items []string) bool {
	for _, item := range items {
		switch item {
		case name:
			return true
		case "-" + name:
			return false
		}
	}
	return slices.Contains(items, "*")
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
