package garbagecollector

import (
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// edge is one owner reference.
type edge struct {
	dependent, owner *node
	next             *edge         // of the same dependent
	after, before    *edge         // of the same owner
	since            time.Duration // from the creation of the graph until the references of the dependent last changed
	kind             unique.Handle[writtenKind]
	name             string
	blocking         bool
}

// writtenKind is what a reference says of the type of its owner.
type writtenKind struct{ apiVersion, kind string }

// sameRefs reports whether the references of a node are those that are written, in the same order.
func (g *graph) sameRefs(n *node, refs []metav1.OwnerReference) bool {
	e := n.refs
	for _, ref := range refs {
		if e == nil || !e.equals(ref) {
			return false
		}
		e = e.next
	}
	return e == nil
}

func (e *edge) equals(ref metav1.OwnerReference) bool {
	key, _ := idOf(ref.UID)
	return e.owner.uid == key && e.blocking == blocking(ref) && e.name == ref.Name && e.kind.Value() == writtenKind{ref.APIVersion, ref.Kind}
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
			kind: unique.Make(writtenKind{ref.APIVersion, ref.Kind}), name: ref.Name, blocking: blocking(ref),
		}
		if owner.name == ref.Name {
			e.name = owner.name // share the text
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
	g.tidy(e.owner)
}

// isCalled reports whether a reference names what an object, which must be seen, is. The version of the API does not matter: one object is served in
// all versions of its group.
func (g *graph) isCalled(n *node, kind writtenKind, name string) bool {
	typ := n.feed.typ
	group, ok := groupOf(kind.apiVersion)
	return ok && group == typ.Group && kind.kind == typ.kind && name == n.name
}

// reachable reports whether a reference can be meant for an object where its owner, which must be seen, is: one namespace does not refer to another, nor does what is in
// no namespace refer into one.
func (g *graph) reachable(e *edge) bool {
	return e.owner.space == clusterScope || e.owner.space == e.dependent.space
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
	kind := e.kind.Value()
	return reference{apiVersion: kind.apiVersion, kind: kind.kind, name: e.name, uid: g.uidOf(e.owner), blocking: e.blocking}
}
