package controller

import (
	"maps"
	"slices"
)

// Create is the creation of an object under one name, in one or more attempts.
type Create struct {
	Name    string
	Unknown bool // an attempt has an unknown outcome, so the object may exist
}

// Creates holds, by name, the creates for one owner that are not known to have succeeded. A create with
// unknown outcome is repeated under the same name, so all its attempts create at most one object. Callers
// remove a name once any object has it. Creates belong to the sync of the owner and are not safe for
// concurrent use.
type Creates map[string]Create

// Choose returns n names: first names of earlier creates, unknown outcomes before rejected ones, then new
// names from draw that are not taken.
func (c Creates) Choose(n int, draw func() string, taken func(name string) bool) []string {
	rank := map[bool]int{true: 0, false: 1}
	names := slices.Sorted(maps.Keys(c))
	slices.SortStableFunc(names, func(a, b string) int { return rank[c[a].Unknown] - rank[c[b].Unknown] })
	names = names[:min(n, len(names))]
	for len(names) < n {
		if name := draw(); !taken(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Start records that a create is about to be sent, and returns the earlier state of the name. The outcome is
// unknown until the caller stores another state or deletes the name.
func (c Creates) Start(name string) Create {
	before := c[name]
	before.Name = name
	c[name] = Create{Name: name, Unknown: true}
	return before
}
