package main

import (
	"fmt"
	"path"
	"strings"
)

type selection struct {
	patterns    []string
	long        bool
	contestants []string
}

func pick(all []scenario, s selection) (wanted []scenario, err error) {
	if len(s.patterns) == 0 {
		s.patterns = []string{"*"}
	}
	used := map[string]bool{}
	for _, candidate := range all {
		matched := false
		for _, pattern := range s.patterns {
			ok, err := path.Match(pattern, candidate.name)
			if err != nil {
				return nil, fmt.Errorf("scenario pattern %q: %w", pattern, err)
			}
			used[pattern] = used[pattern] || ok
			matched = matched || ok && (s.long || !candidate.long || pattern == candidate.name)
		}
		if !matched {
			continue
		}
		if candidate.contestants, err = keep(candidate.contestants, s.contestants); err != nil {
			return nil, err
		}
		wanted = append(wanted, candidate)
	}
	for _, pattern := range s.patterns {
		if !used[pattern] {
			return nil, fmt.Errorf("no scenario is named %q; -list shows all", pattern)
		}
	}
	return wanted, nil
}

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

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
