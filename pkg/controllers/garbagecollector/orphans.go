package garbagecollector

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// lateRounds is how often an owner is held for dependents that came while it was made to leave the others behind. Somebody who goes on making them, because
// those are no longer its dependents, would hold it for ever.
const lateRounds = 3

// finishOrphaning takes away all references to an owner, and then lets it go. It returns what still holds it, and whether it has changed meanwhile.
func (c *Controller) finishOrphaning(ctx context.Context, o ending) (next, hindrance, bool, error) {
	s := ownerSight{meant: o.live.uid, owner: o.live, waited: o.waited(c.deps.Clock.Now()), undiscovered: c.undiscovered(o.memory)}
	if n := finish(s); n.do == hold { // the deletion was of another kind when discovery was asked
		return n, noTypes(), false, nil
	}
	types, known, unseen := c.lists.everywhere(o)
	passes := []pass{{types: types, known: known, unseen: unseen}}
	if o.memory.listed { // to list everything again is expensive, so what held the owner then is tried first
		failed := slices.DeleteFunc(slices.Clone(types), func(t apiType) bool { return !o.memory.unlisted[t.GroupResource()] })
		passes = []pass{{types: failed, known: known, unseen: unseen}, {types: types, unseen: unseen}}
	}
	var orphans []object
	for _, p := range passes {
		n, h, found, err := c.makeOrphans(ctx, o, s, p)
		if err != nil || n.do != finalize {
			return n, h, false, err
		}
		orphans = union(orphans, found)
	}
	late := len(union(orphans, c.graph.referring(o.key))) - len(orphans) // those would be deleted with the owner
	if late > 0 && o.memory.late < lateRounds {
		c.memories.note(o.key, func(m *ownerMemory) { m.late++ })
		return next{do: hold, why: byRefs, after: ringPatience}, hindrance{all: late}, false, nil
	}
	changed, err := c.finalize(ctx, o, metav1.FinalizerOrphanDependents)
	return next{}, hindrance{}, changed, err
}

// pass is one of the looks for orphans-to-be.
type pass struct {
	types  []apiType // to list
	known  []object  // dependents that the graph shows
	unseen []blind   // types that cannot even be asked for
}

// makeOrphans takes away the references to an owner that a pass shows, and returns the dependents that had them. The next step is to let the owner go if the
// pass has left nothing to be done.
func (c *Controller) makeOrphans(ctx context.Context, o ending, s ownerSight, p pass) (next, hindrance, []object, error) {
	swept, err := c.lists.dependents(ctx, search{types: p.types, shared: c.lists.isSmall, namespace: o.live.namespace, owner: o.key, since: o.memory.since})
	if err != nil {
		return next{}, hindrance{}, nil, err
	}
	c.memories.note(o.key, func(m *ownerMemory) {
		m.listed, m.unlisted = true, map[schema.GroupResource]bool{}
		for _, r := range swept.failed {
			m.unlisted[r] = true
		}
	})
	dependents := union(swept.found, p.known)
	h := hindrance{blind: slices.Concat(p.unseen, swept.blind)}
	s.looked, s.blind, s.again, s.refs = true, len(h.blind), swept.again, len(dependents)
	n := finish(s)
	if n.do != orphan {
		return n, h, dependents, nil
	}
	if err := each(ctx, dependents, func(ctx context.Context, dependent object) error { return c.orphan(ctx, dependent, o.live.uid) }); err != nil {
		h.all = len(dependents)
		return n, h, dependents, err
	}
	s.refs = 0
	return finish(s), h, dependents, nil
}

// union is what lists and the graph have shown, each once, as the lists have it: they are newer, and complete.
func union(listed, known []object) []object {
	met := map[types.UID]bool{}
	var all []object
	for _, o := range append(slices.Clone(listed), known...) {
		if !met[o.uid] {
			met[o.uid] = true
			all = append(all, o)
		}
	}
	return all
}

// orphan takes the references to an owner away from one dependent.
func (c *Controller) orphan(ctx context.Context, dependent object, owner types.UID) error {
	return c.rewrite(ctx, dependent, owner, requestOrphan, func(o object) []operation {
		refs := positions(o, func(r reference) bool { return r.uid == owner })
		if len(refs) == 0 {
			return nil
		}
		return refPatch(o, refs, removed)
	})
}
