package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
)

const (
	// cycleDelay is the time without progress after which an owner looks for a cycle.
	cycleDelay = time.Second
	// dependentListTimeout is the time for which a type without a list blocks foreground deletions. A missed dependent
	// is deleted later.
	dependentListTimeout = 30 * time.Second
	// A blocked owner is rechecked after as long as it has waited, within these bounds, in case of a lost event.
	minRecheck = 30 * time.Second
	maxRecheck = 5 * time.Minute
	// unlistedRecheck is the first recheck of an owner that leaves orphans while a type cannot be listed. It exceeds
	// the rechecks of awaitTypes, which send no requests and need no spread.
	unlistedRecheck = 3 * time.Second / 2
	// recheckSpread delays the rechecks that send requests by a random time of up to recheckSpread per owner with the
	// same cause, at most maxRecheck.
	recheckSpread = 80 * time.Millisecond
	// firstRecheck is the first recheck of an owner that waits for discovery, or that has new blocking dependents.
	firstRecheck = 20 * time.Millisecond
	// writesAtOnce bounds the concurrent patches of the dependents of one owner.
	writesAtOnce = 32
)

// cause is the reason why an owner is blocked; a label of metrics.
type cause string

const (
	causeFinalizers   cause = "finalizer"   // finalizers of other controllers block dependents
	causeDependents   cause = "dependents"  // all blocking dependents wait for dependents of their own
	causeNotRemoved   cause = "not_removed" // dependents are not being deleted yet
	causeUnlistedType cause = "unseen_type" // a type cannot be listed
	causeReferences   cause = "references"  // dependents still refer to an owner that leaves orphans
	causeRejected     cause = "rejected"    // a policy or a missing permission rejects a request
	causeFailed       cause = "failed"      // a request fails
	causeBusy         cause = "busy"        // a request waits for a slot
)

// blockage describes the obstacle to the deletion of an owner. The cause is empty if the owner is not blocked.
type blockage struct {
	cause   cause
	count   int      // dependents
	some    []object // the first of those
	types   []unlistedType
	failure string        // of the last request
	after   time.Duration // time until the next recheck
}

// reconcileOwner completes the deletion of an owner that waits for its dependents or leaves orphans.
func (c *Controller) reconcileOwner(ctx context.Context, key id) (controller.Result, error) {
	d, ok := c.graph.dependentsOf(key, maxNamed)
	if !ok || !d.owner.marks.finishing() {
		c.state.forgetOwner(key)
		return controller.Result{}, nil
	}
	record := c.state.owner(key, d.owner.marks.has(orphaning), c.Clock.Now())
	b, err := c.finishOwner(ctx, key, d, record)
	return c.recordBlockage(ctx, key, d.owner, record, b, err)
}

func (c *Controller) finishOwner(ctx context.Context, key id, d dependents, record ownerRecord) (blockage, error) {
	now := c.Clock.Now()

	// 1. A foreground deletion waits for the blocking dependents in the graph.
	if !record.orphaning && d.blocking > 0 {
		return c.awaitDependents(ctx, key, d, record, now)
	}

	// 2. The types have to be known.
	state := c.types.state(d.owner.resource)
	if b := c.awaitTypes(state, record, now); b.after > 0 {
		return b, nil
	}

	// 3. The live owner has to be in the same kind of deletion.
	live, err := c.readAgain(ctx, state.apiType, d.owner)
	switch {
	case err != nil || live == nil || !live.marks.finishing():
		return blockage{}, err
	case live.marks.has(orphaning) != record.orphaning:
		return blockage{after: minBackoff}, nil // the event is late
	}

	// 4. Orphans lose their references.
	finalizer := metav1.FinalizerDeleteDependents
	if record.orphaning {
		finalizer = metav1.FinalizerOrphanDependents
		if b, err := c.orphanDependents(ctx, key, state.apiType, *live, record); err != nil || b.cause != "" {
			return b, err
		}
	}

	// 5. The owner goes, unless blocking dependents have appeared during the read.
	if d, ok := c.graph.dependentsOf(key, 0); ok && !record.orphaning && d.blocking > 0 {
		return blockage{after: firstRecheck}, nil
	}
	return blockage{}, c.rewrite(ctx, *live, live.uid, requestFinalize, func(o object) []operation { return finalizerPatch(o, finalizer) })
}

// awaitTypes returns the blockage of an owner while types are unknown, or the zero value. Orphans need a discovery that
// was sent after the deletion.
func (c *Controller) awaitTypes(owner typeState, record ownerRecord, now time.Time) blockage {
	waited, since := now.Sub(record.since), record.since
	var unsynced []unlistedType
	if !record.orphaning {
		since = time.Time{}
		for _, t := range c.types.allStates() {
			if t.phase == listing && t.mayDependOn(owner.apiType) && now.Sub(t.since) < dependentListTimeout {
				unsynced = append(unsynced, unlistedType{t.GroupResource().String(), "the objects are being listed"})
			}
		}
	}
	switch {
	case !c.types.discoveredSince(since):
		unknown := []unlistedType{{"any type", "discovery is not complete"}}
		return blockage{cause: causeUnlistedType, types: unknown, after: min(max(waited, firstRecheck), minBackoff)}
	case len(unsynced) > 0:
		return blockage{cause: causeUnlistedType, types: unsynced, after: cycleDelay}
	case !owner.isServed(): // every request would fail; rechecks detect the return of the type
		return blockage{after: min(max(waited, minBackoff), minRecheck)}
	}
	return blockage{}
}

// awaitDependents returns the blockage of an owner with blocking dependents, and breaks a cycle of owners that wait for
// each other.
func (c *Controller) awaitDependents(ctx context.Context, key id, d dependents, record ownerRecord, now time.Time) (blockage, error) {
	waited, still := now.Sub(record.since), now.Sub(timing.Later(record.since, record.blockersChanged))
	b := blockage{cause: causeDependents, count: d.blocking, some: d.some, after: recheck(waited)}
	switch {
	case d.idle > 0:
		b.cause = causeNotRemoved
	case d.blocking > d.waiting:
		b.cause = causeFinalizers
	case still < cycleDelay:
		b.after = cycleDelay - still
	default:
		b.after = min(max(waited, cycleDelay), maxRecheck)
		return b, forEach(ctx, c.graph.cycleBlockers(key), func(ctx context.Context, blocker object) error {
			return c.rewrite(ctx, blocker, d.owner.uid, requestUnblock, func(o object) []operation {
				if !o.marks.waiting() {
					return nil
				}
				return refPatch(o, refsTo(o, d.owner.uid, true), unblocked)
			})
		})
	}
	return b, nil
}

// orphanDependents removes the references to an owner from all dependents. A zero blockage means that a sweep of all
// types since the deletion and since the last patch has found no dependent.
func (c *Controller) orphanDependents(ctx context.Context, key id, ownerType apiType, owner object, record ownerRecord) (blockage, error) {
	waited := c.Clock.Since(record.since)
	b := blockage{after: min(max(waited/8, cycleDelay), minRecheck)}
	since, orphaned := record.since, map[types.UID]bool{}
	patch := func(dependents []object) error {
		for _, o := range dependents {
			orphaned[o.uid] = true
		}
		err := forEach(ctx, dependents, func(ctx context.Context, dependent object) error {
			return c.rewrite(ctx, dependent, owner.uid, requestOrphan, func(o object) []operation {
				return refPatch(o, refsTo(o, owner.uid, false), removed)
			})
		})
		switch {
		case err != nil:
			b.cause, b.count = causeReferences, len(dependents)
		case len(dependents) > 0:
			since = c.Clock.Now()
		}
		return err
	}
	for range 2 {
		// The dependents in the graph come first: while their patches are rejected, no type is listed.
		all, shown, unserved := c.sweeper.typesToSweep(key, ownerType)
		shown = slices.DeleteFunc(shown, func(o object) bool { return orphaned[o.uid] }) // events may be late
		if err := patch(shown); err != nil {
			return b, err
		}
		found, unlisted, err := c.sweepTypes(ctx, all, unserved, record.unlisted, owner, since)
		b.types = unlisted
		if err == nil {
			err = patch(found)
		}
		switch {
		case err != nil:
			return b, err
		case len(found) > 0: // the next round proves that no dependent is left
		case len(unlisted) > 0:
			b.cause, b.after = causeUnlistedType, min(max(waited/2, unlistedRecheck), minRecheck)
			return b, nil
		case !slices.ContainsFunc(c.graph.dependentObjects(key), func(o object) bool { return !orphaned[o.uid] }):
			return blockage{}, nil
		}
	}
	b.cause, b.count = causeReferences, len(orphaned)
	return b, nil
}

// sweepTypes sweeps all types that may have dependents of an owner. While a type is unlisted, only the types are swept
// that were unlisted at the last sync.
func (c *Controller) sweepTypes(ctx context.Context, all []apiType, unserved, last []unlistedType,
	owner object, since time.Time) ([]object, []unlistedType, error) {
	if len(last) > 0 {
		failed := slices.DeleteFunc(slices.Clone(all), func(t apiType) bool {
			return !slices.ContainsFunc(last, func(u unlistedType) bool { return u.resource == t.GroupResource().String() })
		})
		_, unlisted, err := c.sweeper.sweep(ctx, failed, owner, since)
		if err != nil || len(unserved)+len(unlisted) > 0 {
			return nil, append(unserved, unlisted...), err
		}
	}
	found, unlisted, err := c.sweeper.sweep(ctx, all, owner, since)
	return found, append(unserved, unlisted...), err
}

// refsTo returns the positions of the references to an owner, or of those with blockOwnerDeletion.
func refsTo(o object, owner types.UID, blocking bool) (positions []int) {
	for n, r := range o.refs {
		if r.uid == owner && (r.blocking || !blocking) {
			positions = append(positions, n)
		}
	}
	return positions
}

// rewrite sends the patch that build returns, and builds the patch again from a live read if the object has changed.
// An empty patch ends the loop.
func (c *Controller) rewrite(ctx context.Context, o object, account types.UID, purpose string, build func(object) []operation) error {
	t := c.types.state(o.resource).apiType
	for range tries {
		ops := build(o)
		if len(ops) == 0 {
			return nil
		}
		result, err := c.writer.patch(ctx, t, o, account, ops, purpose, nil)
		if result != conflict && result != invalid {
			return err
		}
		now, readErr := c.readAgain(ctx, t, o)
		switch {
		case now == nil:
			return readErr
		case result == conflict && now.version == o.version, result == invalid && slices.Equal(build(*now), ops):
			return err
		}
		o = *now
	}
	return fmt.Errorf("%s %v %q: object was modified concurrently too often", purpose, o.resource, o.qualifiedName())
}

// forEach calls do for many objects, writesAtOnce at a time. It returns the first failure, or else the first
// rejection. It stops at the end of the term, after errBusy, and after writesAtOnce consecutive errors. The order is
// random, so that a group of objects that rejects every request does not hide the others at each retry.
func forEach(ctx context.Context, all []object, do func(context.Context, object) error) error {
	var group controller.Group
	group.SetLimit(writesAtOnce)
	var consecutive atomic.Int32
	failed := make([]error, len(all))
	for _, n := range rand.Perm(len(all)) {
		if controller.Draining(ctx) {
			_ = group.Wait()
			return controller.ErrDraining
		}
		group.Go(func() error {
			if consecutive.Load() >= writesAtOnce {
				return nil
			}
			switch failed[n] = controller.Contain(func() error { return do(ctx, all[n]) }); {
			case failed[n] == nil:
				consecutive.Store(0)
			case errors.Is(failed[n], errBusy):
				consecutive.Store(writesAtOnce)
			default:
				consecutive.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait()
	var rejection error
	for _, err := range failed {
		if err != nil && !errors.Is(err, errRejected) {
			return err
		}
		rejection = cmp.Or(rejection, err)
	}
	return rejection
}

// recheck returns the time until the next sync of an owner that has waited for the given time.
func recheck(waited time.Duration) time.Duration { return min(max(waited, minRecheck), maxRecheck) }
