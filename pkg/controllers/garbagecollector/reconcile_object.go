package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// reconcileObject deletes an object without solid owners. If a solid owner exists, it removes the references to absent
// and waiting owners.
func (c *Controller) reconcileObject(ctx context.Context, key id) (controller.Result, error) {
	o, ok := c.graph.observe(key)
	if !ok {
		c.state.setObject(key, objectRecord{})
		return controller.Result{}, nil
	}
	record, t := c.state.object(key), c.types.state(o.resource)
	if !t.isServed() { // discovery requeues the objects of a type that returns
		record.cause = ""
		c.state.setObject(key, record)
		return controller.Result{}, nil
	}
	if backoff := c.backoffOf(o, record); backoff > 0 {
		return controller.Result{RequeueAfter: backoff}, nil
	}
	for range tries {
		// 1. Find the states of the owners. Those of a terminating object decide nothing.
		var v ownerView
		if !o.marks.has(terminating) {
			var err error
			if v, err = c.owners.read(ctx, o); err != nil {
				return c.recordFailure(key, err)
			}
		}
		// 2. Decide, and record why an object is kept without a solid owner.
		d := decide(o.marks, v.states, v.hasDependents)
		switch d.action {
		case await:
			record.cause = v.cause
		case remove, release:
			record.cause = ""
		default:
			record = objectRecord{invalidNamespaces: record.invalidNamespaces}
		}
		record.invalidNamespaces = c.reportInvalidNamespace(o, v, record.invalidNamespaces)
		c.state.setObject(key, record)
		if d.action != remove && d.action != release {
			return controller.Result{RequeueAfter: v.after}, nil
		}
		// 3. Act.
		changed, after, err := c.act(ctx, t.apiType, o, v, d)
		if err != nil {
			return c.recordFailure(key, err)
		}
		if changed == nil {
			return controller.Result{RequeueAfter: after}, nil
		}
		o = *changed
	}
	return controller.Result{RequeueAfter: minBackoff}, nil // the object keeps changing
}

// backoffOf returns the rest of the back-off of a rejected request, or 0. It saves the reads of owners while the object
// is unchanged. A rejected patch ends the sync only while the graph shows a solid owner: after the last has gone, the
// object is deleted instead.
func (c *Controller) backoffOf(o object, record objectRecord) time.Duration {
	now := c.Clock.Now()
	if record.version != o.version || !record.retryAt.After(now) {
		return 0
	}
	owners, _ := c.graph.observeOwners(o)
	if record.rejectedAction != remove && !slices.ContainsFunc(owners, func(e ownerObservation) bool { return e.status == refValid }) {
		return 0
	}
	return record.retryAt.Sub(now)
}

// act sends the request of a decision. If the decision no longer holds, it returns the current object.
func (c *Controller) act(ctx context.Context, t apiType, o object, v ownerView, d decision) (changed *object, after time.Duration, err error) {
	if record, now := c.state.object(o.key()), c.Clock.Now(); record.rejectedAction == d.action && record.retryAt.After(now) {
		return nil, record.retryAt.Sub(now), nil
	}
	if d.action == remove && !o.live && (!t.local || o.version == "") { // the API may ignore preconditions
		reread, err := c.readAgain(ctx, t, o)
		if reread == nil || !reread.sameMetadata(o) {
			return reread, 0, err
		}
		o = *reread
	}
	// Reads grow old and events come while a request waits. The user may turn a foreground deletion into orphaning.
	// A patch tests the object itself.
	stillValid := func() bool {
		if !t.local && d.action == remove && c.Clock.Since(o.readAt) > time.Second ||
			slices.Contains(v.states, waitingForDependents) && c.Clock.Since(v.viewedAt) > readValidFor {
			return false
		}
		next := c.owners.view(o, v.syncBegun)
		return len(next.reads) == 0 && slices.Equal(next.states, v.states)
	}
	var result requestResult
	if d.action == remove {
		result, err = c.writer.delete(ctx, t, o, d.policy, stillValid)
	} else {
		result, err = c.writer.patch(ctx, t, o, o.uid, refPatch(o, d.refs, removed), requestRelease, stillValid)
	}
	switch result {
	case outdated:
		o.live, o.readAt = false, c.Clock.Now()
		return &o, 0, nil
	case conflict, invalid:
		reread, readErr := c.readAgain(ctx, t, o)
		if reread == nil || result == conflict && reread.version != o.version || !reread.sameMetadata(o) {
			return reread, 0, readErr
		}
		return nil, c.recordRejection(ctx, o, d, err), nil // the object has not changed
	case rejected:
		return nil, c.recordRejection(ctx, o, d, err), nil
	case failed:
		return nil, 0, err
	case gone:
		c.graph.removeNotFound(o.key())
	}
	c.state.setObject(o.key(), objectRecord{})
	return nil, 0, nil
}

// readAgain reads an object. It returns nil, and removes the object from the graph, if the object is gone.
func (c *Controller) readAgain(ctx context.Context, t apiType, was object) (*object, error) {
	var m *metav1.PartialObjectMetadata
	err := errName
	if len(content.IsPathSegmentName(was.name)) == 0 {
		err = c.owners.limit.do(ctx, t.GroupVersionResource, func(ctx context.Context) (err error) {
			m, err = c.owners.get(ctx, location{t.GroupVersionResource, was.namespace, was.name})
			return err
		})
	}
	switch {
	case err == nil && m.UID == "":
		err = errors.New("object has no UID")
	case err == nil && m.UID == was.uid:
		now := objectOf(t.GroupResource(), m)
		now.readAt = c.Clock.Now()
		return &now, nil
	case err == nil, classifyRead(nil, err, was.name) == missing:
		c.graph.removeNotFound(was.key())
		return nil, nil
	}
	return nil, fmt.Errorf("get %v %q: %w", t.GroupResource(), was.qualifiedName(), err)
}

// recordFailure records why a sync of an object has failed, and returns the result of the sync. The loop paces the
// retries.
func (c *Controller) recordFailure(key id, err error) (controller.Result, error) {
	record := c.state.object(key)
	switch {
	case errors.Is(err, errBusy):
		record.cause = string(causeBusy)
	case errors.Is(err, context.Canceled): // the end of the term
	default:
		record.failure, record.rejectedAction, record.rejections, record.retryAt = outcome.EventMessage(err), "", 0, time.Time{}
	}
	c.state.setObject(key, record)
	return controller.Result{}, err
}

// recordRejection returns the back-off after a rejected request. The first rejection of each object is logged, at
// most ten per minute and cause, or all in a dry run.
func (c *Controller) recordRejection(ctx context.Context, o object, d decision, err error) time.Duration {
	now := c.Clock.Now()
	record := c.state.object(o.key()).rejection(d.action, o.version, err.Error(), c.state.rejections, now)
	c.state.setObject(o.key(), record)
	if d.action == remove && record.rejections == lastingRejections && errors.Is(err, errDryRun) {
		c.metrics.lasting.Inc()
	}
	logger := klog.FromContext(ctx)
	if record.rejections > 1 || !errors.Is(err, errDryRun) && !c.objectLoop.AdmitsLine(logger, err) {
		logger = logger.V(2)
	}
	logger.Info("Request was rejected", "resource", o.resource, "object", klog.KRef(o.namespace, o.name), "uid", o.uid,
		"reason", err, "times", record.rejections)
	return record.retryAt.Sub(now)
}
