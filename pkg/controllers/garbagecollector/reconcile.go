package garbagecollector

import (
	"context"
	"time"

	"minikcm/pkg/controller"
)

// reconcileObject looks at one object whose owners may be gone: at what the graph holds against them, at what the API server says of them,
// and does what follows.
func (c *Controller) reconcileObject(ctx context.Context, key id) (controller.Result, error) {
	o, against, owns, ok := c.graph.look(key)
	if !ok {
		c.memories.setObject(key, objectMemory{})
		return controller.Result{}, nil
	}
	return c.settle(ctx, o, against, owns)
}

// settle has an object deleted, released or left alone, as its owners say. It begins anew as often as the object turns out not to be as it
// was seen.
func (c *Controller) settle(ctx context.Context, o object, against []suspicion, owns bool) (controller.Result, error) {
	if m := c.memories.object(keyed(o)); m.version != "" && m.version == o.version {
		if pause := m.again.Sub(c.deps.Clock.Now()); pause > 0 {
			return controller.Result{RequeueAfter: pause}, nil
		}
	}
	t := c.types.state(o.resource)
	for range tries {
		if o.read.IsZero() {
			o.read = c.deps.Clock.Now()
		}
		var v view
		if !o.marks.has(terminating) { // the owners of an object that is being deleted decide nothing
			var err error
			if v, err = c.owners.judged(ctx, o, against); err != nil {
				c.busy(o, err)
				return controller.Result{}, err
			}
		}
		a := decide(sight{object: o, owners: v.owners, owns: owns})
		c.remember(o, a, v)
		if a.do == let {
			c.ownerLoop.Add(keyed(o))
		}
		if a.do != remove && a.do != release || !t.served() {
			return controller.Result{RequeueAfter: v.after}, nil
		}
		next, err := c.act(ctx, t.apiType, o, v, a)
		if err != nil {
			c.failed(o, a, err)
			return controller.Result{}, err
		}
		if next.over {
			return controller.Result{RequeueAfter: next.after}, nil
		}
		o = next.object
		against, owns = c.graph.against(o), c.graph.owns(keyed(o)) // events may have come
	}
	return controller.Result{RequeueAfter: minPause}, nil // it keeps changing
}

// turn is what follows a request, or one that could not be sent yet.
type turn struct {
	over   bool
	after  time.Duration // over: when to look again; 0: there is no need
	object object        // not over: what to decide about next, as it was seen last
}

// act sends the request of an action.
func (c *Controller) act(ctx context.Context, at apiType, o object, v view, a action) (turn, error) {
	if pause := c.memories.object(keyed(o)).pause(a.do, c.deps.Clock.Now()); pause > 0 {
		return turn{over: true, after: pause}, nil
	}
	if c.wantsLive(at, o, a) {
		now, err := c.reread(ctx, at, o)
		if now == nil {
			return turn{over: true}, err
		}
		if !now.sameFor(o) {
			return turn{object: *now}, nil
		}
		o = *now
	}
	still := func() bool { return !c.outdated(at, o) && c.owners.holds(o, v) }
	var got requestResult
	var err error
	if a.do == remove {
		got, err = c.writer.remove(ctx, at, o, a.policy, still)
	} else {
		got, err = c.writer.patch(ctx, at, o, o.uid, refPatch(o, a.refs, removed), requestRelease, still)
	}
	switch got {
	case outdated:
		return turn{object: o}, nil
	case conflict, invalid:
		now, readErr := c.reread(ctx, at, o)
		if now == nil {
			return turn{over: true}, readErr
		}
		if got == conflict && now.version != o.version || !now.sameFor(o) {
			return turn{object: *now}, nil
		}
		return turn{over: true, after: c.refused(ctx, o, a, err)}, nil
	case rejected:
		return turn{over: true, after: c.refused(ctx, o, a, err)}, nil
	case failed:
		return turn{}, err
	}
	c.recordDone(o, v, a, got)
	if got == gone {
		c.graph.deny(keyed(o))
	}
	return turn{over: true}, nil
}

// wantsLive reports whether the object has to be read before a request can be sent.
func (c *Controller) wantsLive(at apiType, o object, a action) bool {
	if o.live != nil {
		return c.outdated(at, o)
	}
	return a.do == remove && needsLive(o, at.local)
}

// outdated reports whether the live read of an object is too old, if the API of the object may ignore preconditions.
func (c *Controller) outdated(at apiType, o object) bool {
	return !at.local && c.deps.Clock.Since(o.read) > objectFor
}

// reread returns an object as it is now. It returns nil if no object has this UID any more, and removes it from the graph then.
func (c *Controller) reread(ctx context.Context, at apiType, was object) (*object, error) {
	got, says, err := c.writer.read(ctx, at, was)
	switch {
	case err != nil:
		return nil, err
	case says == missing || got.uid != was.uid:
		c.graph.deny(keyed(was))
		return nil, nil
	}
	got.read = c.deps.Clock.Now()
	return &got, nil
}
