package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// selection says which scenarios to run.
type selection struct {
	patterns    []string // shell patterns of names; none: all that are not long
	long        bool     // with the long ones that the patterns leave in
	controllers []string // those that the managers run
	contestants []string // shell patterns of names; none: all
}

// pick returns the scenarios that are wanted and, one line each, why others that a pattern names are left out. A long one
// is taken with long set or if a pattern is its name. It is an error if a pattern is malformed or matches nothing.
func pick(all []scenario, s selection) (wanted []scenario, leftOut []string, err error) {
	if len(s.patterns) == 0 {
		s.patterns = []string{"*"}
	}
	used := map[string]bool{}
	for _, candidate := range all {
		matched, named := false, false
		for _, pattern := range s.patterns {
			ok, err := path.Match(pattern, candidate.name)
			if err != nil {
				return nil, nil, fmt.Errorf("scenario pattern %q: %w", pattern, err)
			}
			if ok {
				used[pattern], matched = true, true
			}
			named = named || pattern == candidate.name
		}
		switch missing := lacking(candidate.needs, s.controllers); {
		case !matched:
		case candidate.long && !s.long && !named:
			leftOut = append(leftOut, candidate.name+": takes long, see -long")
		case len(missing) > 0:
			leftOut = append(leftOut, fmt.Sprintf("%s: needs %s", candidate.name, strings.Join(missing, ", ")))
		default:
			kept, err := keep(candidate.contestants, s.contestants)
			if err != nil {
				return nil, nil, err
			}
			candidate.contestants = kept
			wanted = append(wanted, candidate)
		}
	}
	for _, pattern := range s.patterns {
		if !used[pattern] {
			return nil, nil, fmt.Errorf("no scenario is named %q; -list shows all", pattern)
		}
	}
	return wanted, leftOut, nil
}

// keep returns the contestants that one of the patterns matches.
func keep(all []contestant, patterns []string) ([]contestant, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var kept []contestant
	for _, c := range all {
		for _, pattern := range patterns {
			ok, err := path.Match(pattern, c.name)
			if err != nil {
				return nil, fmt.Errorf("contestant pattern %q: %w", pattern, err)
			}
			if ok {
				kept = append(kept, c)
				break
			}
		}
	}
	return kept, nil
}

// lacking are the elements of needs that are not in have.
func lacking(needs, have []string) []string {
	return slices.DeleteFunc(slices.Clone(needs), func(n string) bool { return slices.Contains(have, n) })
}

// fields splits a comma-separated list; an empty one has no elements.
func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
