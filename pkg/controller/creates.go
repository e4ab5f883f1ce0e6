package controller

import (
	"slices"
	"time"
)

// Create is the creation of an object under a name, in one attempt or several.
type Create struct {
	Name    string
	Unknown bool      // an attempt was not answered, so the object may exist or come to exist
	Until   time.Time // by then it exists or never will; zero: an attempt is under way. For metrics: whether to repeat it does not depend on this
}

// Creates are the creates for one owner that are neither known to have succeeded nor to have failed for good. One whose answer was lost is repeated
// under the same name, so that all its attempts make at most one object. They belong to the sync of the owner, and are not safe for concurrent use.
type Creates []Create

// Choose returns n names to create objects under: first those of earlier creates, unanswered ones before rejected ones, then new ones from draw that are not taken.
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

// Begin notes that a create is about to be sent under a name, and returns what was known of that name before. Until Keep or End says
// otherwise, the create counts as not answered.
func (c *Creates) Start(name string) Create {
	i := c.index(name)
	if i < 0 {
		i = len(*c)
		*c = append(*c, Create{Name: name})
	}
	begun := (*c)[i]
	(*c)[i] = Create{Name: name, Unknown: true}
	return begun
}

// Keep says how an attempt stands that is to be repeated.
func (c *Creates) Retry(a Create) {
	if i := c.index(a.Name); i >= 0 {
		(*c)[i] = a
	}
}

// End drops an attempt: its object was made, or the name is another's.
func (c *Creates) Done(name string) {
	if i := c.index(name); i >= 0 {
		*c = slices.Delete(*c, i, i+1)
	}
}

// Resolve ends the attempts whose name has an object, and returns how many that were not answered have made it. find tells whether there is an
// object of that name, and whether it is the owner's.
func (c *Creates) Resolve(find func(name string) (found, ours bool)) (made int) {
	*c = slices.DeleteFunc(*c, func(a Create) bool {
		found, ours := find(a.Name)
		if found && ours && a.Unknown {
			made++
		}
		return found
	})
	return made
}

// LookUp calls get for the name of each create, and returns a function that finds the objects that get has returned.
func LookUp[T any](c Creates, get func(name string) (T, bool)) func(name string) (T, bool) {
	objects := make(map[string]T)
	for _, a := range c {
		if object, ok := get(a.Name); ok {
			objects[a.Name] = object
		}
	}
	return func(name string) (T, bool) {
		object, ok := objects[name]
		return object, ok
	}
}

// Unanswered returns, for each attempt that was not answered, by when its object exists or never will.
func (c *Creates) Unanswered() []time.Time {
	var until []time.Time
	for _, a := range *c {
		if a.Unknown {
			until = append(until, a.Until)
		}
	}
	return until
}

func (c *Creates) index(name string) int {
	return slices.IndexFunc(*c, func(a Create) bool { return a.Name == name })
}
