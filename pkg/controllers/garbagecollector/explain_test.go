package garbagecollector

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExplain(t *testing.T) {
	pod := func(name string, m marks) object {
		return object{resource: schema.GroupResource{Resource: "pods"}, namespace: "a", name: name, marks: seen | m}
	}
	for _, tt := range []struct {
		name string
		got  string
		want string
	}{
		{"a finalizer", explainForeground(1, []blocker{{object: pod("p", terminating|held), finalizers: []string{"x/z", "x/y"}}}, nil),
			`Deletion waits for 1 dependent with blockOwnerDeletion: pods "a/p" is held by finalizers x/y, x/z.`},
		{"finalizers that were not read, and what waits itself", explainForeground(2, []blocker{{object: pod("p", terminating|held)}, {object: pod("q", terminating|foreground), own: 2}}, nil),
			`Deletion waits for 2 dependents with blockOwnerDeletion: pods "a/p" is held by finalizers; pods "a/q" waits for 2 dependents of its own.`},
		{"many", explainForeground(9, []blocker{{object: pod("a", terminating)}, {object: pod("b", 0)}, {object: pod("c", 0), refused: "forbidden"}, {object: pod("d", 0)}}, nil),
			`Deletion waits for 9 dependents with blockOwnerDeletion: pods "a/a" is being deleted; pods "a/b" is not deleted yet; pods "a/c" cannot be deleted: forbidden; and 6 more.`},
		{"another owner that cannot be known", explainForeground(1, []blocker{{object: pod("p", 0), unknown: reference{apiVersion: "example.com/v1", kind: "Widget", name: "w"}, why: unserved.text()}}, nil),
			`Deletion waits for 1 dependent with blockOwnerDeletion: pods "a/p" is not deleted, because its owner example.com/v1 Widget "w" cannot be looked for: its kind is not known.`},
		{"a type that cannot be seen", explainForeground(0, nil, []blind{{"widgets.example.com", "conversion webhook failed"}}),
			`Whether there are dependents of widgets.example.com cannot be told: conversion webhook failed.`},
		{"both", explainForeground(1, []blocker{{object: pod("p", 0)}}, []blind{{"b", "second"}, {"a", "first"}, {"d", "fourth"}, {"c", "third"}, {"e", "fifth"}}),
			`Deletion waits for 1 dependent with blockOwnerDeletion: pods "a/p" is not deleted yet. Whether there are dependents of a, b, c, 2 more cannot be told: first.`},
		{"orphans", explainOrphaning(1, nil), `Deletion waits until 1 dependent no longer refers to this object.`},
		{"orphans that cannot be seen", explainOrphaning(2, []blind{{"widgets.example.com", "conversion webhook failed"}}),
			`Deletion waits until 2 dependents no longer refer to this object. Whether there are dependents of widgets.example.com cannot be told: conversion webhook failed. ` +
				`If there are no dependents of these types that are to be kept, remove the finalizer orphan.`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("text is\n%s\nwant\n%s", tt.got, tt.want)
			}
		})
	}
	for _, p := range []problem{unparsable, outOfReach, undiscovered, unserved, otherVersion, ambiguous} {
		if p.text() == "" {
			t.Errorf("problem %q has no words", p)
		}
	}
}
