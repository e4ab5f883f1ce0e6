package garbagecollector

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Debug serves what is known of an object, by its UID, as text: graph?why=<uid>. Otherwise it draws the graph for Graphviz: graph?uid=<uid> what is around an
// object, or several, and without a UID all objects that own something or are owned. It asks the API server nothing.
func (c *Controller) Debug() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if uid := types.UID(strings.TrimSpace(r.URL.Query().Get("why"))); uid != "" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			c.why(w, uid)
			return
		}
		var around []id
		for _, uid := range r.URL.Query()["uid"] {
			key, _ := idOf(types.UID(strings.TrimSpace(uid)))
			around = append(around, key)
		}
		w.Header().Set("Content-Type", "text/vnd.graphviz; charset=utf-8")
		_ = c.graph.draw(around, mostDrawn).write(w) // who asked has gone
	})
}

// why writes what is known of an object: how it is seen, what is known of its owners, and who refers to it.
func (c *Controller) why(w io.Writer, uid types.UID) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	key, _ := idOf(uid)
	o, against, _, ok := c.graph.look(key)
	if !ok {
		say("No object with the UID %s is seen.", uid)
		c.dependentsInWords(say, key)
		return
	}
	t := c.types.state(o.resource)
	say("%s %s, UID %s, resource version %s%s", o.resource, named(o), o.uid, o.version, deletion(o))
	say("its type: %s since %v, %d objects%s", t.phase, t.since.Format("15:04:05"), t.objects(), failing(t.err))
	if !c.inTerm.Load() {
		say("This process does not lead: nothing is decided here.")
	}
	now := c.deps.Clock.Now()
	v := c.owners.view(o, against, now, round{})
	for n, r := range o.refs {
		say("owner %s %q, UID %s, blocks %v: %s%s", r.apiVersion+" "+r.kind, r.name, r.uid, r.blocking, inWords(v.of[n].ruling), reasonOf(v.of[n].problem))
	}
	if len(o.refs) > 0 {
		a := decide(sight{object: o, owners: v.owners, owns: c.graph.owns(key)})
		say("so: %s%s", a.do, map[bool]string{true: ", when the API server has been asked"}[len(v.ask) > 0])
	}
	m := c.memories.object(key)
	if m.refused != "" {
		say("its deletion was last answered: %s", m.refused)
	}
	c.dependentsInWords(say, key)
}

// dependentsInWords says who refers to an object.
func (c *Controller) dependentsInWords(say func(string, ...any), key id) {
	d, ok := c.graph.dependentsOf(key, most)
	if !ok {
		return
	}
	say("dependents: %d; %d of them block its deletion, of which %d are not being deleted and %d wait for dependents of their own", d.all, d.blocking, d.idle, d.waiting)
	for _, o := range d.some {
		say("  %s %s, UID %s%s", o.resource, named(o), o.uid, deletion(o))
	}
	if m, ok := c.memories.knownOwner(key); ok {
		say("it has been seen to be deleted for %v, and is held by: %s", c.deps.Clock.Since(m.since).Round(time.Second), m.why)
	}
}

func named(o object) string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

func deletion(o object) string {
	var text string
	if o.marks.has(terminating) {
		text = ", is being deleted"
	}
	for _, f := range []struct {
		mark marks
		name string
	}{{foreground, "foregroundDeletion"}, {orphaning, "orphan"}, {held, "of others"}} {
		if o.marks.has(f.mark) {
			text += ", finalizer " + f.name
		}
	}
	return text
}

func failing(err error) string {
	if err == nil {
		return ""
	}
	return ", failing: " + err.Error()
}

// inWords is a ruling in words.
func inWords(r ruling) string {
	switch {
	case r.ask:
		return "the API server has to be asked"
	case r.verdict == unknown:
		return "nothing is known of it (" + r.held + ")"
	}
	return map[verdict]string{present: "lives", waiting: "waits for its dependents", absent: "is gone"}[r.verdict] + " (" + string(r.witness) + ")"
}

func reasonOf(p problem) string {
	if p == fine {
		return ""
	}
	return ": " + p.text()
}
