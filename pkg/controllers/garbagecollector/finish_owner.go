package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// reconcileOwner brings an owner that is being deleted a step closer to its end. As long as the graph shows dependents that hold it, it is not read live
// here: the syncs that delete those dependents ask for it themselves.
func (c *Controller) reconcileOwner(ctx context.Context, key id) (controller.Result, error) {
	d, ok := c.graph.dependentsOf(key, most)
	if !ok || !d.owner.marks.finishing() {
		c.memories.forgetOwner(key)
		return controller.Result{}, nil
	}
	m := c.memories.owner(key, d.owner.marks.has(orphaning), c.deps.Clock.Now())
	switch n := finish(c.inGraph(key, d, m)); {
	case n.do == hold && n.why == byBlindness:
		h := noTypes()
		if !c.undiscovered(m) {
			h.blind = c.listingTypes(c.types.state(d.owner.resource).apiType)
		}
		return c.wait(ctx, key, d.owner, n, h), nil
	case n.do == hold, n.do == collect:
		c.collectAgain(key, n)
		return c.wait(ctx, key, d.owner, n, hindrance{all: d.blocking, some: d.some}), nil
	}
	at := c.types.state(d.owner.resource)
	if !at.served() {
		return controller.Result{}, nil // nobody can let it go; if its type comes back, it is looked at again
	}
	for range tries {
		live, err := c.reread(ctx, at.apiType, d.owner)
		switch {
		case err != nil:
			return c.conclude(ctx, key, d.owner, next{}, hindrance{}, err)
		case live == nil || finish(ownerSight{meant: d.owner.uid, owner: *live}).do == nothing: // its event comes
			c.memories.note(key, func(m *ownerMemory) { m.why = "" })
			return controller.Result{}, nil
		}
		o := ending{key: key, at: at.apiType, live: *live, memory: c.memories.owner(key, live.marks.has(orphaning), c.deps.Clock.Now())}
		end := c.finishForeground
		if live.marks.has(orphaning) {
			end = c.finishOrphaning
		}
		n, h, changed, err := end(ctx, o)
		if !changed {
			return c.conclude(ctx, key, o.live, n, h, err)
		}
	}
	return c.wait(ctx, key, d.owner, next{do: hold, why: byFailure, after: minPause}, hindrance{refused: errKeepsChanging.Error()}), nil
}

// ending is an owner that is being deleted, as it is now.
type ending struct {
	key    id
	at     apiType
	live   object
	memory ownerMemory
}

func (o ending) waited(now time.Time) time.Duration { return now.Sub(o.memory.since) }

// conclude notes what holds an owner, if anything does, and says when to look again. What was rejected is asked for again now and then, what has failed with the
// back-off of the loop. That others are in line, or that the term ends, is no failure.
func (c *Controller) conclude(ctx context.Context, key id, owner object, n next, h hindrance, err error) (controller.Result, error) {
	switch {
	case err == nil && n == (next{}):
		return controller.Result{}, nil
	case errors.Is(err, errRejected):
		m, _ := c.memories.knownOwner(key)
		n, h.refused, err = afterRejection(c.deps.Clock.Since(m.since)), err.Error(), nil
	case errors.Is(err, errBusy):
		c.memories.note(key, func(m *ownerMemory) { m.why = byLine })
		return controller.Result{}, err
	case errors.Is(err, context.Canceled):
		return controller.Result{}, err
	case err != nil:
		n.why, h.refused = cmp.Or(n.why, byFailure), outcome.EventMessage(err)
	}
	return c.wait(ctx, key, owner, n, h), err
}

// noTypes is what holds an owner until it is known which types there are.
func noTypes() hindrance {
	return hindrance{blind: []blind{{"any type", "the API server has not told which types there are"}}}
}

// undiscovered reports whether an owner has to wait until it is known which types there are: all that there are now, if dependents are to be kept that
// may be of one which was defined a moment ago. One that is missed otherwise goes later, and is not lost.
func (c *Controller) undiscovered(m ownerMemory) bool {
	if m.orphaning {
		return !c.types.discoveredSince(m.since)
	}
	return !c.types.discoveredSince(time.Time{})
}

// inGraph is what the graph shows of an owner that is being deleted.
func (c *Controller) inGraph(key id, d dependents, m ownerMemory) ownerSight {
	s := ownerSight{
		meant: d.owner.uid, owner: d.owner, blocking: d.blocking, idle: d.idle, waiting: d.waiting, refs: d.all,
		waited: c.deps.Clock.Since(m.since), still: c.deps.Clock.Since(timing.Later(m.since, m.moved)), undiscovered: c.undiscovered(m),
	}
	if s.blocking == 0 && !m.orphaning {
		s.blind = len(c.listingTypes(c.types.state(d.owner.resource).apiType))
	}
	if s.blocking > 0 && s.blocking == s.waiting && s.still >= ringPatience { // or it is not asked for
		r, ok := c.graph.waitingBelow(key).ringOf(d.owner.uid)
		s.ring = ok && r.victim == d.owner.uid
	}
	return s
}

// finishForeground removes the finalizer foregroundDeletion once the graph shows no dependent that blocks the owner.
func (c *Controller) finishForeground(ctx context.Context, o ending) (next, hindrance, bool, error) {
	d, ok := c.graph.dependentsOf(o.key, most)
	if !ok {
		return next{}, hindrance{}, false, nil
	}
	s := c.inGraph(o.key, d, o.memory)
	s.owner = o.live
	n, all := finish(s), hindrance{all: d.blocking, some: d.some, blind: c.listingTypes(o.at)}
	switch n.do {
	case unblock:
		return n, all, false, c.unblock(ctx, o)
	case finalize:
		changed, err := c.finalize(ctx, o, metav1.FinalizerDeleteDependents)
		return next{}, hindrance{}, changed, err
	}
	return n, all, false, nil
}

// listingTypes returns the types that may depend on an owner and whose first list has not come yet. A type that cannot be listed counts for blindPatience.
func (c *Controller) listingTypes(owner apiType) (all []blind) {
	for _, t := range c.types.states() {
		if t.watched && t.mayDependOn(owner) && t.listingFor(c.deps.Clock.Now()) > 0 && t.listingFor(c.deps.Clock.Now()) < blindPatience {
			all = append(all, blind{t.GroupResource().String(), "the objects are being listed"})
		}
	}
	return all
}

// unblock breaks a ring: those of its members that hold the victim no longer do.
func (c *Controller) unblock(ctx context.Context, victim ending) error {
	r, _ := c.graph.waitingBelow(victim.key).ringOf(victim.live.uid)
	var members []object
	for _, uid := range r.release {
		key, _ := idOf(uid)
		if o, _, _, ok := c.graph.look(key); ok {
			members = append(members, o)
		}
	}
	return each(ctx, members, func(ctx context.Context, member object) error {
		return c.rewrite(ctx, member, victim.live.uid, requestUnblock, func(o object) []operation {
			refs := positions(o, func(r reference) bool { return r.uid == victim.live.uid && r.blocking })
			if len(refs) == 0 || !o.marks.waiting() {
				return nil
			}
			return refPatch(o, refs, unblocked)
		})
	})
}

func positions(o object, wanted func(reference) bool) []int {
	var at []int
	for n, r := range o.refs {
		if wanted(r) {
			at = append(at, n)
		}
	}
	return at
}

// rewrite sends the patch that build returns, and builds the patch again from a live read if the object has changed. It does nothing if the patch is empty.
func (c *Controller) rewrite(ctx context.Context, o object, account types.UID, what string, build func(object) []operation) error {
	at := c.types.state(o.resource).apiType
	for range tries {
		ops := build(o)
		if len(ops) == 0 {
			return nil
		}
		got, err := c.writer.patch(ctx, at, o, account, ops, what, always)
		if got != conflict && got != invalid && (err != nil || len(ops) < fullPatch) {
			return err
		}
		now, readErr := c.reread(ctx, at, o)
		switch {
		case now == nil:
			return readErr
		case got == conflict && now.version == o.version, got == invalid && slices.Equal(build(*now), ops):
			return err
		}
		o = *now
	}
	return fmt.Errorf("%s %v %q: %w", what, o.resource, named(o), errKeepsChanging)
}

var errKeepsChanging = errors.New("object was modified concurrently too often")

// finalize removes the finalizer from an owner. It reports whether the decision has to be made again because the owner has changed.
func (c *Controller) finalize(ctx context.Context, o ending, finalizer string) (changed bool, err error) {
	err = c.rewrite(ctx, o.live, o.live.uid, requestFinalize, func(now object) []operation {
		if changed = !now.sameFor(o.live); changed {
			return nil
		}
		return finalizerPatch(now, finalizer)
	})
	if err == nil && !changed {
		c.memories.forgetOwner(o.key)
	}
	return changed, err
}

// each calls do for many objects, writesAtOnce at a time. Of several errors it returns the most urgent, or the first of those.
// After ErrDraining, errBusy or writesAtOnce errors in a row it begins no more calls.
func each(ctx context.Context, all []object, do func(context.Context, object) error) error {
	var group controller.Group
	group.SetLimit(writesAtOnce)
	var busy atomic.Bool
	var inRow atomic.Int32
	failed := make([]error, len(all)+1) // the last: the term ends
	for n, o := range all {
		if controller.Draining(ctx) {
			failed[len(all)] = controller.ErrDraining
			break
		}
		group.Go(func() error {
			if busy.Load() || inRow.Load() >= writesAtOnce {
				return nil
			}
			failed[n] = controller.Contain(func() error { return do(ctx, o) })
			busy.CompareAndSwap(false, errors.Is(failed[n], errBusy))
			if inRow.Add(1); failed[n] == nil {
				inRow.Store(0)
			}
			return nil
		})
	}
	_ = group.Wait()
	return slices.MaxFunc(failed, func(a, b error) int { return cmp.Compare(urgency(a), urgency(b)) })
}

// urgency is the greater the sooner a retry makes sense.
func urgency(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errRejected):
		return 1
	case errors.Is(err, context.Canceled): // the term ends, or others are in line
		return 3
	}
	return 2
}

// collectAgain wakes the dependents of an owner that are not being deleted yet, now and then: the events that do so may have been missed.
func (c *Controller) collectAgain(key id, n next) {
	now := c.deps.Clock.Now()
	due := false
	c.memories.note(key, func(m *ownerMemory) {
		if due = n.do == collect && now.Sub(m.collected) >= minRecheck; due {
			m.collected = now
		}
	})
	if due {
		c.graph.collect(key)
	}
}
