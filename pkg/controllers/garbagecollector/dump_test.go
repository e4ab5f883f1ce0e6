package garbagecollector

import (
	"net/http/httptest"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheGraphIsDrawn(t *testing.T) {
	w := newWorld(t)
	f := w.feed(configMaps)
	for _, o := range []*thing{
		newThing("ns", "alone", uid(1)),
		newThing("ns", "owner", uid(2)).finalizedBy("foregroundDeletion").deleted(),
		newThing("ns", "dependent", uid(3)).owned(blockingRef("v1", "ConfigMap", "owner", uid(2))),
		newThing("ns", "lost", uid(4)).owned(ref("v1", "ConfigMap", "a \"name\"\n", uid(5))),
	} {
		w.do(func() error { return f.Add(&o.PartialObjectMetadata) })
	}
	const (
		head  = "digraph owners {\n\trankdir=BT;\n"
		chain = `	"00000000-0000-4000-8000-000000000002" [label="configmaps ns/owner, is being deleted, finalizer foregroundDeletion", color=red];
	"00000000-0000-4000-8000-000000000003" [label="configmaps ns/dependent"];
`
		lost = `	"00000000-0000-4000-8000-000000000004" [label="configmaps ns/lost"];
	"00000000-0000-4000-8000-000000000005" [label="a \"name\"\n", style=dashed];
`
		blocks = `	"00000000-0000-4000-8000-000000000003" -> "00000000-0000-4000-8000-000000000002" [style=bold];
`
		refers = `	"00000000-0000-4000-8000-000000000004" -> "00000000-0000-4000-8000-000000000005";
`
	)
	for _, tt := range []struct {
		name, query, want string
	}{
		{"all that owns or is owned", "", head + chain + lost + blocks + refers + "}\n"},
		{"around a dependent", "?uid=" + string(uid(3)), head + chain + blocks + "}\n"},
		{"around one without owners", "?uid=" + string(uid(1)), head + "\t\"" + string(uid(1)) + "\" [label=\"configmaps ns/alone\"];\n}\n"},
		{"around two", "?uid=" + string(uid(5)) + "&uid=" + string(uid(2)), head + chain + lost + blocks + refers + "}\n"},
		{"around one that nobody knows", "?uid=" + string(uid(9)), head + "}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := httptest.NewRecorder()
			(&Controller{graph: w.graph}).Debug().ServeHTTP(answer, httptest.NewRequest("GET", "/graph"+tt.query, nil))
			if diff := gocmp.Diff(tt.want, answer.Body.String()); diff != "" {
				t.Errorf("drawn (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlySoMuchIsDrawn(t *testing.T) {
	w := newWorld(t)
	f := w.feed(configMaps)
	for n := range 10 {
		o := newThing("ns", "chain", uid(n+1)).owned(ref("v1", "ConfigMap", "chain", uid(n+2)))
		w.do(func() error { return f.Add(&o.PartialObjectMetadata) })
	}
	for _, around := range [][]id{nil, {keyOf(types.UID(uid(5)))}} {
		d := w.graph.draw(around, 4)
		var text strings.Builder
		if err := d.write(&text); err != nil {
			t.Fatal(err)
		}
		if len(d.objects) != 4 || !strings.Contains(text.String(), "4 objects of more") {
			t.Errorf("%d objects are drawn, want 4 and that there are more:\n%s", len(d.objects), &text)
		}
	}
}
