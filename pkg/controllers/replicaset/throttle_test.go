package replicaset

import "testing"

func TestObserveSpec(t *testing.T) {
	for _, tt := range []struct {
		name              string
		before            int64 // generation that pods were last created for in this term; 0: none
		generation, acted int64
		changed           bool
	}{
		{"first seen in this term", 0, 3, 3, false},
		{"first seen, and not acted on by the manager before us", 0, 3, 2, true},
		{"new", 0, 1, 0, true},
		{"as before", 3, 3, 3, false},
		{"as before, the status is late", 3, 3, 2, false},
		{"changed", 3, 4, 3, true},
	} {
		s := successors{generation: tt.before}
		s.observeSpec(tt.generation, tt.acted, now)
		if changed := s.specSince.Equal(now); changed != tt.changed || s.generation != tt.generation {
			t.Errorf("%s: changed %t, want %t; generation %d, want %d", tt.name, changed, tt.changed, s.generation, tt.generation)
		}
	}
}
