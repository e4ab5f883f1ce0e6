package garbagecollector

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// mostDrawn is how many objects are drawn at most: no program draws more, and the graph is locked meanwhile.
const mostDrawn = 5_000

// drawing is a part of the graph.
type drawing struct {
	objects []object // in the order of their UIDs
	more    bool     // there is more than was taken
}

// draw takes what is around some objects, their owners and dependents with all theirs; around none: all that owns something or is owned.
func (g *graph) draw(around []id, most int) drawing {
	g.lock.Lock()
	defer g.lock.Unlock()
	var d drawing
	var open []*node
	taken := map[*node]bool{}
	take := func(n *node) {
		switch {
		case n == nil || taken[n]:
		case len(taken) >= most:
			d.more = true
		default:
			taken[n] = true
			open = append(open, n)
		}
	}
	for _, key := range around {
		take(g.nodes[key])
	}
	if len(around) == 0 {
		for _, n := range g.nodes {
			if n.refs != nil || n.dependents != nil {
				take(n)
			}
		}
	}
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		if n.marks.has(seen) {
			d.objects = append(d.objects, g.snapshot(n))
		} else {
			d.objects = append(d.objects, object{name: n.name, uid: g.uidOf(n)})
		}
		for e := n.refs; e != nil; e = e.next {
			take(e.owner)
		}
		for e := n.dependents; e != nil; e = e.after {
			take(e.dependent)
		}
	}
	slices.SortFunc(d.objects, func(a, b object) int { return cmp.Compare(a.uid, b.uid) })
	return d
}

// write writes a drawing as Graphviz reads it: an arrow goes from a dependent to its owner, a bold one blocks, what is dashed is referred to and not seen, what is red
// is being deleted.
func (d drawing) write(w io.Writer) error {
	lines := []string{"digraph owners {", "\trankdir=BT;"}
	if d.more {
		lines = append(lines, fmt.Sprintf("\tlabel=\"%d objects of more: ask with ?uid=\";", len(d.objects)))
	}
	drawn := map[types.UID]bool{}
	for _, o := range d.objects {
		drawn[o.uid] = true
		look := ""
		switch {
		case !o.marks.has(seen):
			look = ", style=dashed"
		case o.marks.has(terminating):
			look = ", color=red"
		}
		title := o.name
		if o.marks.has(seen) {
			title = fmt.Sprintf("%s %s%s", o.resource, named(o), deletion(o))
		}
		lines = append(lines, fmt.Sprintf("\t%s [label=%s%s];", quoted(string(o.uid)), quoted(title), look))
	}
	for _, o := range d.objects {
		for _, r := range o.refs {
			if drawn[r.uid] {
				look := map[bool]string{true: " [style=bold]"}[r.blocking]
				lines = append(lines, fmt.Sprintf("\t%s -> %s%s;", quoted(string(o.uid)), quoted(string(r.uid)), look))
			}
		}
	}
	for _, line := range append(lines, "}") {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return fmt.Errorf("write the graph: %w", err)
		}
	}
	return nil
}

// quoted is a text as an identifier of Graphviz. Names in references may be anything.
func quoted(text string) string { return strconv.QuoteToASCII(text) }
