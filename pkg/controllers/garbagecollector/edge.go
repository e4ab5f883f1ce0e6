package garbagecollector

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// edge is one owner reference.
type edge struct {
	dependent, owner *node
	next             *edge         // of the same dependent
	after, before    *edge         // of the same owner
	since            time.Duration // from the creation of the graph until the references of the dependent last changed
	kind             uint32
	blocking         bool
}

// writtenKind is what a reference says of the type of its owner.
type writtenKind struct{ apiVersion, kind string }

// sameRefs reports whether the references of a node are those that are written, in the same order.
func (g *graph) sameRefs(n *node, refs []metav1.OwnerReference) bool {
	e := n.refs
	for _, ref := range refs {
		if e == nil || !g.says(e, ref) {
			return false
		}
		e = e.next
	}
	return e == nil
}

func (g *graph) says(e *edge, ref metav1.OwnerReference) bool {
	key, _ := idOf(ref.UID)
	return e.owner.uid == key && e.blocking == blocking(ref) && g.nameOf(e) == ref.Name &&
		g.kinds.at(e.kind) == writtenKind{ref.APIVersion, ref.Kind}
}

func (g *graph) nameOf(e *edge) string {
	if name, differs := g.names[e]; differs {
		return name
	}
	return e.owner.name
}

// rewire replaces the references of a node.
func (g *graph) rewire(n *node, refs []metav1.OwnerReference) {
	old, now := n.refs, g.clock.Since(g.began)
	n.refs = nil
	next := &n.refs
	for _, ref := range refs {
		owner := g.nodeOf(ref.UID, ref.Name)
		e := &edge{
			dependent: n, owner: owner, after: owner.dependents, since: now,
			kind: g.kinds.take(writtenKind{ref.APIVersion, ref.Kind}), blocking: blocking(ref),
		}
		if owner.name != ref.Name {
			g.names[e] = ref.Name
		}
		if owner.dependents != nil {
			owner.dependents.before = e
		}
		owner.dependents = e
		*next = e
		next = &e.next
	}
	for ; old != nil; old = old.next { // afterwards, so that owners in both are not forgotten in between
		g.unlink(old)
	}
}

// unlink takes a reference from the list of its owner.
func (g *graph) unlink(e *edge) {
	if e.before != nil {
		e.before.after = e.after
	} else {
		e.owner.dependents = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	}
	g.kinds.drop(e.kind)
	delete(g.names, e)
	g.tidy(e.owner)
}

// isCalled reports whether a reference names what an object, which must be seen, is. The version of the API does not matter: one object is served in
// all versions of its group.
func (g *graph) isCalled(n *node, kind writtenKind, name string) bool {
	typ := g.feeds[n.feed].typ
	group, ok := groupOf(kind.apiVersion)
	return ok && group == typ.Group && kind.kind == typ.kind && name == n.name
}

// reachable reports whether a reference can be meant for an object where its owner, which must be seen, is: one namespace does not refer to another, nor does what is in
// no namespace refer into one.
func (g *graph) reachable(e *edge) bool {
	return g.spaces.at(e.owner.space) == "" || e.owner.space == e.dependent.space
}

// groupOf is the API group that a reference names.
func groupOf(apiVersion string) (group string, ok bool) {
	switch group, version, grouped := strings.Cut(apiVersion, "/"); {
	case !grouped:
		return "", apiVersion != ""
	default:
		return group, group != "" && version != "" && !strings.Contains(version, "/")
	}
}

func (g *graph) reference(e *edge) reference {
	kind := g.kinds.at(e.kind)
	return reference{apiVersion: kind.apiVersion, kind: kind.kind, name: g.nameOf(e), uid: g.uidOf(e.owner), blocking: e.blocking}
}
