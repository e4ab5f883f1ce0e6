package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"minikcm/internal/timing"
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
	try := attempt{at: t.apiType}
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
		next, err := c.act(ctx, &try, o, v, a)
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

// attempt is how far one settling has come.
type attempt struct {
	at        apiType
	merging   bool // it does not take strategic patches, as it turned out
	conflicts int  // in a row, about an object that has not changed in anything that counts
	byUID     bool
}

// patchType is how an object can be patched, as far as is known by now.
func (try attempt) patchType(o object) types.PatchType {
	return patchable(o, builtIn(try.at) && !try.merging)
}

// turn is what follows a request, or one that could not be sent yet.
type turn struct {
	over   bool
	after  time.Duration // over: when to look again; 0: there is no need
	object object        // not over: what to decide about next, as it was seen last
}

// act sends the one request that an action takes.
func (c *Controller) act(ctx context.Context, try *attempt, o object, v view, a action) (turn, error) {
	m := c.memories.object(keyed(o))
	switch pause := m.pause(a.do, c.deps.Clock.Now()); {
	case pause > 0:
		return turn{over: true, after: pause}, nil
	case c.wantsLive(*try, o, v, a):
		return c.anew(ctx, *try, o)
	}
	as := try.patchType(o)
	still := func() bool { return !c.outdated(*try, o, v) && c.owners.holds(o, v) }
	var got requestResult
	var err error
	if a.do == remove {
		got, err = c.writer.remove(ctx, try.at, o, a.policy, try.byUID, still)
	} else {
		var p patch
		if p, err = released(o, as, a.refs); err == nil {
			got, err = c.writer.patch(ctx, try.at, o, o.uid, p, requestRelease, still)
		}
	}
	switch {
	case got == rejected:
		return turn{over: true, after: c.refused(ctx, o, a, err)}, nil
	case err != nil:
		return turn{}, err
	case got == unfit && as == types.MergePatchType:
		return turn{}, unpatchable(o)
	case got == unfit:
		try.merging = true
		return turn{object: o}, nil
	case got == outdated:
		return turn{object: o}, nil
	case got == conflict:
		return c.afterConflict(ctx, try, o, a)
	}
	c.recordDone(o, v, a, got)
	if got == gone {
		c.graph.deny(keyed(o))
	}
	return turn{over: true}, nil
}

// errNoConflict is what a policy says that answers with a conflict.
var errNoConflict = errors.New("it was answered with a conflict, and the object has not changed")

func unpatchable(o object) error {
	return fmt.Errorf("patch %v %q: it takes neither a strategic nor a merge patch", o.resource, named(o))
}

// wantsLive reports whether the object has to be read before a request can be sent.
func (c *Controller) wantsLive(try attempt, o object, v view, a action) bool {
	switch {
	case o.live != nil:
		return c.outdated(try, o, v)
	case a.do == release:
		return try.patchType(o) == types.MergePatchType || o.version == ""
	}
	return needsLive(o, try.at.local)
}

// outdated reports whether an object was read so long ago that it may be another by now, and its API may not keep to preconditions. The age of an object that was
// fresh when the round of its owners began counts from the end of the round: a slow API is not a broken one.
func (c *Controller) outdated(try attempt, o object, v view) bool {
	read, r := o.read, v.round
	if r.began.Sub(read) <= liveFor && r.ended.Sub(r.began) <= longestRound {
		read = timing.Later(read, r.ended)
	}
	return !try.at.local && c.deps.Clock.Since(read) > liveFor
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

// anew has an object decided about as it is now.
func (c *Controller) anew(ctx context.Context, try attempt, was object) (turn, error) {
	now, err := c.reread(ctx, try.at, was)
	if now == nil {
		return turn{over: true}, err
	}
	return turn{object: *now}, nil
}

// afterConflict looks at what has changed. If nothing has, somebody only says that there was a conflict.
func (c *Controller) afterConflict(ctx context.Context, try *attempt, was object, a action) (turn, error) {
	next, err := c.anew(ctx, *try, was)
	if err != nil || next.over {
		return next, err
	}
	if was.version != "" && next.object.version == was.version {
		err := fmt.Errorf("%s %v %q: %w: %w", a.do, was.resource, named(was), errRejected, errNoConflict)
		return turn{over: true, after: c.refused(ctx, was, a, err)}, nil
	}
	try.conflicts++
	switch afterConflict(was, next.object, try.conflicts) {
	case decideAnew:
		try.conflicts, try.byUID = 0, false
	case repeatByUID:
		try.byUID = true
	}
	return next, nil
}

// builtIn reports whether a type is compiled into the API server, and so takes a strategic patch.
func builtIn(t apiType) bool {
	return t.local && scheme.Scheme.Recognizes(t.GroupVersion().WithKind(t.kind))
}
