package controller

import (
	"slices"
	"time"
)

// Attempt is the create of an object under a name.
type Attempt struct {
	Name    string
	Unknown bool      // an attempt was not answered, so the object may exist or come to exist
	Until   time.Time // by then it exists or never will; zero: the attempt is under way
}

// Creates are the attempts to create the objects of one owner that are not known to have come to an end. An attempt that was not answered is
// repeated under its name: both together make one object at most. They belong to the sync of the owner, and are not safe for concurrent use.
type Creates []Attempt

// Begin returns n attempts to make now: first the earlier ones, then new ones, under names from draw that are not taken. As long as Keep and
// End say nothing else, they count as not answered.
func (c *Creates) Begin(n int, draw func() string, taken func(name string) bool) []Attempt {
	for len(*c) < n {
		if name := draw(); !taken(name) && c.index(name) < 0 {
			*c = append(*c, Attempt{Name: name})
		}
	}
	begun := slices.Clone((*c)[:n])
	for i := range (*c)[:n] {
		(*c)[i].Unknown, (*c)[i].Until = true, time.Time{}
	}
	return begun
}

// Keep says how an attempt stands that is to be repeated.
func (c *Creates) Keep(a Attempt) {
	if i := c.index(a.Name); i >= 0 {
		(*c)[i] = a
	}
}

// End drops an attempt: its object was made, or the name is another's.
func (c *Creates) End(name string) {
	if i := c.index(name); i >= 0 {
		*c = slices.Delete(*c, i, i+1)
	}
}

// Resolve ends the attempts whose name has an object, and returns how many that were not answered have made it. find tells whether there is an
// object of that name, and whether it is the owner's.
func (c *Creates) Resolve(find func(name string) (found, ours bool)) (made int) {
	*c = slices.DeleteFunc(*c, func(a Attempt) bool {
		found, ours := find(a.Name)
		if found && ours && a.Unknown {
			made++
		}
		return found
	})
	return made
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
	return slices.IndexFunc(*c, func(a Attempt) bool { return a.Name == name })
}
