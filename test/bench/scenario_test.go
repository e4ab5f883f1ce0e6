package main

import (
	"slices"
	"strings"
	"testing"
)

func show(order []turn) string {
	var words []string
	for _, t := range order {
		word := itoa(t.run) + ":" + t.scenario.name + ":" + t.contestant.name
		if t.fresh {
			word = "+" + word
		}
		if t.last {
			word += "-"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestTurns(t *testing.T) {
	a, b := contestant{name: "a"}, contestant{name: "b"}
	plain := scenario{name: "x", contestants: []contestant{a, b}}
	short := scenario{name: "y", contestants: []contestant{a}, maxRuns: 1}
	shared := scenario{name: "s", contestants: []contestant{a, b}, shared: true}
	slow := scenario{name: "z", contestants: []contestant{a, b}, slow: []string{"b"}}
	for _, tt := range []struct {
		name      string
		scenarios []scenario
		runs      int
		want      string
	}{
		{"nothing to do", nil, 3, ""},
		{"contestants take turns, each on a control plane of its own", []scenario{plain}, 2, "+1:x:a- +1:x:b- +2:x:a- +2:x:b-"},
		{"a run is done with all scenarios before the next begins", []scenario{plain, short}, 2, "+1:x:a- +1:x:b- +1:y:a- +2:x:a- +2:x:b-"},
		{"a slow contestant runs once", []scenario{slow}, 2, "+1:z:a- +1:z:b- +2:z:a-"},
		{"a shared control plane is started once, after the others", []scenario{shared, short}, 2, "+1:y:a- +1:s:a 1:s:b 2:s:a 2:s:b-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(turns(tt.scenarios, tt.runs)); got != tt.want {
				t.Errorf("turns:\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestPick(t *testing.T) {
	all := []scenario{{name: "pods", contestants: []contestant{{name: "ours"}, {name: "theirs"}}}, {name: "pods-many", long: true}, {name: "nodes"}}
	for _, tt := range []struct {
		name      string
		selection selection
		want      []string
	}{
		{"without patterns all that are not long", selection{}, []string{"pods", "nodes"}},
		{"a long one with -long", selection{patterns: []string{"pods*"}, long: true}, []string{"pods", "pods-many"}},
		{"a long one by its name", selection{patterns: []string{"pods-many"}}, []string{"pods-many"}},
		{"in the order of the list", selection{patterns: []string{"nodes", "pods"}}, []string{"pods", "nodes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wanted, err := pick(all, tt.selection)
			var names []string
			for _, s := range wanted {
				names = append(names, s.name)
			}
			if err != nil || !slices.Equal(names, tt.want) {
				t.Errorf("pick = %q, %v, want %q", names, err, tt.want)
			}
		})
	}
	wanted, err := pick(all, selection{patterns: []string{"pods"}, contestants: []string{"ours*"}})
	if err != nil || len(wanted) != 1 || len(wanted[0].contestants) != 1 {
		t.Errorf("pick of ours* = %+v, %v, want one contestant", wanted, err)
	}
	for _, pattern := range []string{"[", "cows"} {
		if _, err := pick(all, selection{patterns: []string{pattern}}); err == nil {
			t.Errorf("pick(%q) succeeded, want an error", pattern)
		}
	}
}

// TestScenariosAreWhole finds names that targets or peers misspell.
func TestScenariosAreWhole(t *testing.T) {
	contestants := map[[2]string]bool{}
	for _, s := range scenarios {
		if s.measure == nil || s.about == "" || len(s.contestants) == 0 {
			t.Errorf("scenario %s lacks a part", s.name)
		}
		for _, c := range s.contestants {
			if contestants[[2]string{s.name, c.name}] {
				t.Errorf("scenario %s has %s twice", s.name, c.name)
			}
			contestants[[2]string{s.name, c.name}] = true
		}
		for _, name := range append(slices.Clone(s.slow), s.peer) {
			if name != "" && !contestants[[2]string{s.name, name}] {
				t.Errorf("scenario %s names %q, which is not among its contestants", s.name, name)
			}
		}
	}
	for _, target := range targets {
		for _, k := range []key{target.of, target.against} {
			if k != (key{}) && !contestants[[2]string{k.scenario, k.contestant}] {
				t.Errorf("target %q: no contestant %q in scenario %q", target.what, k.contestant, k.scenario)
			}
		}
	}
}
