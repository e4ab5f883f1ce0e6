package controller

import (
	"slices"
	"time"
)

// Create is the creation of an object under one name, in one or more attempts.
type Create struct {
	Name    string
	Unknown bool      // an attempt has an unknown outcome, so the object may exist
	Until   time.Time // time at which the outcome is final; zero while a request is in flight
}

// Creates holds the creates for one owner that are neither known to have succeeded nor to have failed for
// good. A create with unknown outcome is repeated under the same name, so all its attempts create at most
// one object. Creates belong to the sync of the owner and are not safe for concurrent use.
type Creates []Create

// Choose returns n names: first names of earlier creates, unknown outcomes before rejected ones, then new
// names from draw that are not taken.
func (c Creates) Choose(n int, draw func() string, taken func(name string) bool) []string {
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(c, func(a, b Create) int { return rank[a.Unknown] - rank[b.Unknown] })
	names := make([]string, 0, n)
	for _, a := range c[:min(n, len(c))] {
		names = append(names, a.Name)
	}
	for len(names) < n {
		if name := draw(); !taken(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Start records that a create is about to be sent, and returns the earlier state of the name. Until Retry
// or Done the outcome is unknown.
func (c *Creates) Start(name string) Create {
	i := c.indexOf(name)
	if i < 0 {
		i = len(*c)
		*c = append(*c, Create{Name: name})
	}
	begun := (*c)[i]
	(*c)[i] = Create{Name: name, Unknown: true}
	return begun
}

// Retry records the state of an attempt that is to be repeated.
func (c *Creates) Retry(a Create) {
	if i := c.indexOf(a.Name); i >= 0 {
		(*c)[i] = a
	}
}

// Done forgets a create: the object was created, or the name belongs to another owner.
func (c *Creates) Done(name string) {
	if i := c.indexOf(name); i >= 0 {
		*c = slices.Delete(*c, i, i+1)
	}
}

// Resolve forgets creates whose name has an object.
func (c *Creates) Resolve(exists func(name string) bool) {
	*c = slices.DeleteFunc(*c, func(a Create) bool { return exists(a.Name) })
}

func (c *Creates) indexOf(name string) int {
	return slices.IndexFunc(*c, func(a Create) bool { return a.Name == name })
}
