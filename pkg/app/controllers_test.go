package app

import (
	"regexp"
	"strings"
	"testing"

	"minikcm/pkg/controller"
)

func TestEnabled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		items []string
		want  bool
	}{
		{"named", []string{"a"}, true},
		{"named among others", []string{"b", "a"}, true},
		{"not named, no star", []string{"b"}, false},
		{"not named, star", []string{"*"}, true},
		{"switched off, star", []string{"*", "-a"}, false},
		{"switched off before the star", []string{"-a", "*"}, false},
		{"another switched off", []string{"-b"}, false},
		{"the first item that names it decides: off", []string{"-a", "a"}, false},
		{"the first item that names it decides: on", []string{"a", "-a"}, true},
		{"a star never overrides a name", []string{"*", "a", "-a"}, true},
		{"nothing", nil, false},
		{"alias", []string{"short"}, true},
		{"alias switched off", []string{"*", "-short"}, false},
		{"name after alias", []string{"-short", "a"}, false},
		{"two dashes", []string{"--a", "*"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isEnabled(controller.Registration{Name: "a", Alias: "short"}, tt.items); got != tt.want {
				t.Errorf("enabled(a, %q) = %v, want %v", tt.items, got, tt.want)
			}
		})
	}
}

// Manifests contain the names, so no name may change or disappear.
func TestControllerNames(t *testing.T) {
	want := map[string]string{
		"replicaset-controller": "replicaset", "node-lifecycle-controller": "nodelifecycle", "taint-eviction-controller": "",
		"pod-garbage-collector-controller": "podgc", "namespace-controller": "namespace", "endpointslice-controller": "endpointslice", "deployment-controller": "deployment", "garbage-collector-controller": "garbagecollector",
	}
	agents := map[string]string{
		"replicaset-controller": "replicaset-controller", "node-lifecycle-controller": "node-controller", "taint-eviction-controller": "node-controller",
		"pod-garbage-collector-controller": "pod-garbage-collector", "namespace-controller": "namespace-controller",
		"endpointslice-controller":     "endpointslice-controller",
		"deployment-controller":        "deployment-controller",
		"garbage-collector-controller": "generic-garbage-collector",
	}
	form := regexp.MustCompile(`^[a-z]([-a-z]*[a-z])?$`)
	seen := map[string]bool{}
	for _, c := range Controllers() {
		if alias, ok := want[c.Name]; !ok || alias != c.Alias {
			t.Errorf("controller %q with alias %q, want %v", c.Name, c.Alias, want)
		}
		if agents[c.Name] != c.Agent {
			t.Errorf("user agent of %s is %q, want %q", c.Name, c.Agent, agents[c.Name])
		}
		if !form.MatchString(c.Name) || !strings.HasSuffix(c.Name, "-controller") {
			t.Errorf("%q is not a name of a controller", c.Name)
		}
		for _, name := range []string{c.Name, c.Alias} {
			if name != "" && seen[name] {
				t.Errorf("%q names two controllers", name)
			}
			seen[name] = true // without an alias
		}
	}
	if len(seen) != 2*len(want) {
		t.Errorf("names and aliases are %v, want those of %v", seen, want)
	}
}
