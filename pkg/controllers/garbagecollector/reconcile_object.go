package garbagecollector

import (
	"context"
	"time"

	"minikcm/pkg/controller"
)

// reconcileObject deletes an object without solid owners, or removes its references to absent owners.
func (c *Controller) reconcileObject(ctx context.Context, key id) (controller.Result, error) {
	o, suspicions, owns, ok := c.graph.observe(key)
	if !ok {
		c.state.setObject(key, objectRecord{})
		return controller.Result{}, nil
	}
	if m := c.state.object(key); m.version != "" && m.version == o.version && m.retryAt.After(c.deps.Clock.Now()) {
		return controller.Result{RequeueAfter: m.retryAt.Sub(c.deps.Clock.Now())}, nil
	}
	t := c.types.state(o.resource)
	for range tries {
		if o.read.IsZero() {
			o.read = c.deps.Clock.Now()
		}
		// 1. Find the states of the owners. Those of a terminating object decide nothing.
		var v ownerView
		if !o.marks.has(terminating) {
			var err error
			if v, err = c.owners.read(ctx, o, suspicions); err != nil {
				c.recordFailure(key, err)
				return controller.Result{}, err
			}
		}
		// 2. Decide.
		d := decide(o.marks, v.states, owns)
		c.recordDecision(key, o, d, v)
		if d.action == finish {
			c.ownerLoop.Add(key)
		}
		if d.action != remove && d.action != release || !t.isServed() {
			return controller.Result{RequeueAfter: v.after}, nil
		}
		// 3. Act.
		changed, after, err := c.act(ctx, t.apiType, o, v, d)
		if err != nil {
			c.recordFailure(key, err)
			return controller.Result{}, err
		}
		if changed == nil {
			return controller.Result{RequeueAfter: after}, nil
		}
		o = *changed
		suspicions, owns = c.graph.observeOwners(o), c.graph.isOwner(key)
	}
	return controller.Result{RequeueAfter: minBackoff}, nil // the object keeps changing
}

// act sends the request of a decision. If the decision no longer holds, it returns the current object.
func (c *Controller) act(ctx context.Context, at apiType, o object, v ownerView, d decision) (changed *object, after time.Duration, err error) {
	if pause := c.state.object(o.key()).backoff(d.action, c.deps.Clock.Now()); pause > 0 {
		return nil, pause, nil
	}
	if c.needsRead(at, o, d) {
		now, err := c.readAgain(ctx, at, o)
		if now == nil || !now.sameMetadata(o) {
			return now, 0, err
		}
		o = *now
	}
	result, err := c.writer.sendDecision(ctx, at, o, d, func() bool { return !c.outdated(at, o) && c.owners.holds(o, v) })
	switch result {
	case outdated:
		return &o, 0, nil
	case conflict, invalid:
		now, readErr := c.readAgain(ctx, at, o)
		if now == nil || result == conflict && now.version != o.version || !now.sameMetadata(o) {
			return now, 0, readErr
		}
		return nil, c.recordRejection(ctx, o, d, err), nil // the object has not changed
	case rejected:
		return nil, c.recordRejection(ctx, o, d, err), nil
	case failed:
		return nil, 0, err
	}
	c.recordDone(o, v, d, result)
	if result == gone {
		c.graph.removeNotFound(o.key())
	}
	return nil, 0, nil
}

// needsRead reports whether an object has to be read before a request is sent.
func (c *Controller) needsRead(at apiType, o object, d decision) bool {
	if o.live != nil {
		return c.outdated(at, o)
	}
	return d.action == remove && needsLive(o, at.local)
}

// outdated reports whether a live read is too old for an API that may ignore preconditions.
func (c *Controller) outdated(at apiType, o object) bool {
	return !at.local && c.deps.Clock.Since(o.read) > objectFor
}

// readAgain reads an object. It returns nil, and removes the object from the graph, if the object is gone.
func (c *Controller) readAgain(ctx context.Context, at apiType, was object) (*object, error) {
	now, err := c.writer.read(ctx, at, was)
	switch {
	case err != nil:
		return nil, err
	case now == nil || now.uid != was.uid:
		c.graph.removeNotFound(was.key())
		return nil, nil
	}
	now.read = c.deps.Clock.Now()
	return now, nil
}
