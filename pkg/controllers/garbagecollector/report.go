package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// Reasons of events. The first is of kube-controller-manager v1.37, with the same text.
const (
	eventInvalidNamespace = "OwnerRefInvalidNamespace"
	eventForeground       = "ForegroundDeletionBlocked"
	eventOrphan           = "OrphanDeletionBlocked"
)

const (
	// An event is sent about an owner that was blocked for reportAfter, again after the same time if the blockage
	// has changed, or else after reportAgain.
	reportAfter = 30 * time.Second
	reportAgain = 10 * time.Minute
	// maxNamed is the number of dependents and types that an event names.
	maxNamed = 3
	// lastingRejections is the number of rejected deletes of one object, 1 + 2 + ... + 32 s apart, after which a dry
	// run counts the object as lasting.
	lastingRejections = 7
)

// recordBlockage records what blocks an owner and sends an event if the owner has been blocked for long. It returns the
// result of the sync that ended with the given blockage and error.
func (c *Controller) recordBlockage(ctx context.Context, key id, owner object, record ownerRecord, b blockage, err error) (controller.Result, error) {
	now := c.Clock.Now()
	waited := now.Sub(record.since)
	switch {
	case errors.Is(err, errRejected):
		b.cause, b.failure, b.after, err = causeRejected, err.Error(), recheck(waited), nil
	case errors.Is(err, errBusy):
		b.cause = causeBusy
	case errors.Is(err, context.Canceled):
		return controller.Result{}, err
	case err != nil:
		b.cause, b.failure = cmp.Or(b.cause, causeFailed), outcome.EventMessage(err)
	case b.cause == "" && b.after == 0:
		c.state.forgetOwner(key)
		return controller.Result{RequeueAfter: maxRecheck}, nil // in case of a lost event
	}
	record, report := record.next(b, now)
	c.state.setOwner(key, record)
	if report {
		c.reportBlockage(ctx, owner, record.orphaning, b)
	}
	var spread time.Duration
	if b.after >= unlistedRecheck && (b.cause == causeUnlistedType || b.cause == causeRejected) {
		alike := c.state.ownersWhere(func(r ownerRecord) bool { return r.cause == b.cause })
		spread = rand.N(min(time.Duration(len(alike))*recheckSpread, maxRecheck))
	}
	if waited < reportAfter {
		b.after = min(b.after, reportAfter-waited)
	}
	return controller.Result{RequeueAfter: b.after + spread}, err
}

// reportInvalidNamespace sends an event about the first owner in another namespace, unless reported is true. It reports
// whether there is such an owner.
func (c *Controller) reportInvalidNamespace(o object, v ownerView, reported bool) bool {
	n := slices.IndexFunc(v.owners, func(e ownerEvidence) bool { return e.status == refOtherNamespace || e.problem == outOfScope })
	if n >= 0 && !reported {
		r := o.refs[n]
		c.recorder.Eventf(c.referenceTo(o), corev1.EventTypeWarning, eventInvalidNamespace,
			"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			r.apiVersion, r.kind, o.namespace, r.name, r.uid, o.namespace)
	}
	return n >= 0
}

// next returns the record after a sync with a blockage, and whether an event is due.
func (r ownerRecord) next(b blockage, now time.Time) (_ ownerRecord, report bool) {
	r.cause = b.cause
	if b.cause == "" || b.cause == causeBusy {
		return r, false
	}
	r.unlisted = b.types
	blockers := b.count + len(b.types)
	if r.blockersChanged.IsZero() || r.blockers != blockers && (b.failure == "" || blockers > 0) {
		r.blockers, r.blockersChanged = blockers, now
	}
	summary, pause := fmt.Sprintf("%s %d %s", b.cause, blockers, b.failure), reportAgain
	if r.reported != summary {
		pause = reportAfter
	}
	if now.Sub(r.since) < reportAfter || now.Sub(r.reportedAt) < pause {
		return r, false
	}
	r.reported, r.reportedAt = summary, now
	return r, true
}

// reportBlockage sends the event about a blocked owner.
func (c *Controller) reportBlockage(ctx context.Context, owner object, orphans bool, b blockage) {
	var text []string
	switch {
	case orphans && b.count > 0:
		text = append(text, fmt.Sprintf("Deletion waits for the removal of owner references from dependents (%d).", b.count))
	case b.count > 0:
		var some []string
		for _, o := range b.some {
			some = append(some, c.describeBlocker(ctx, o))
		}
		if more := b.count - len(some); more > 0 {
			some = append(some, fmt.Sprintf("and %d more", more))
		}
		text = append(text, fmt.Sprintf("Deletion waits for dependents with blockOwnerDeletion (%d): %s.", b.count, strings.Join(some, "; ")))
	}
	if len(b.types) > 0 {
		text = append(text, describeTypes(b.types))
		if orphans {
			text = append(text, fmt.Sprintf("If no dependents of these types have to be kept, remove the finalizer %s.", metav1.FinalizerOrphanDependents))
		}
	}
	if b.failure != "" {
		text = append(text, "The last request failed: "+b.failure)
	}
	reason := eventForeground
	if orphans {
		reason = eventOrphan
	}
	c.recorder.Event(c.referenceTo(owner), corev1.EventTypeWarning, reason, strings.Join(text, " "))
}

// describeBlocker returns the reason why a dependent still exists. It reads a terminating dependent, because the graph
// does not hold finalizers.
func (c *Controller) describeBlocker(ctx context.Context, o object) string {
	name, key := fmt.Sprintf("%s %q", o.resource, o.qualifiedName()), o.key()
	if !c.types.state(o.resource).isServed() {
		return name + " has a type that the API server does not serve (if it is gone for good, remove the finalizer of the owner)"
	}
	if o.marks.has(terminating) {
		if now, err := c.readAgain(ctx, c.types.state(o.resource).apiType, o); err == nil && now != nil {
			finalizers := slices.DeleteFunc(slices.Sorted(slices.Values(now.finalizers)), func(f string) bool {
				return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
			})
			if len(finalizers) > 0 {
				return fmt.Sprintf("%s has finalizers %s", name, strings.Join(finalizers, ", "))
			}
		}
		if d, ok := c.graph.dependentsOf(key, 0); ok && o.marks.waiting() && d.blocking > 0 {
			return fmt.Sprintf("%s waits for its own dependents (%d)", name, d.blocking)
		}
		return name + " is being deleted"
	}
	v := c.owners.view(o, time.Time{}) // a read of an earlier sync is good enough for an event
	for n, e := range v.owners {
		if r := o.refs[n]; e.state == unknown && cmp.Or(e.cause, string(e.live.result)) != "" {
			return fmt.Sprintf("%s is kept, because the state of its owner %s %s %q is unknown (%s)",
				name, r.apiVersion, r.kind, r.name, cmp.Or(e.cause, string(e.live.result)))
		}
	}
	if failure := c.state.object(key).failure; failure != "" {
		return fmt.Sprintf("%s cannot be deleted: %s", name, failure)
	}
	return name + " is not deleted yet"
}

func describeTypes(types []unlistedType) string {
	types = slices.SortedFunc(slices.Values(types), func(a, b unlistedType) int { return strings.Compare(a.resource, b.resource) })
	var names []string
	for _, t := range types[:min(len(types), maxNamed)] {
		names = append(names, t.resource)
	}
	if more := len(types) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("Dependents of these types are unknown: %s (%s).", strings.Join(names, ", "), types[0].reason)
}

// qualifiedName returns the name as users write it.
func (o object) qualifiedName() string { return strings.TrimPrefix(o.namespace+"/"+o.name, "/") }

func (c *Controller) referenceTo(o object) *corev1.ObjectReference {
	t := c.types.state(o.resource)
	return &corev1.ObjectReference{
		APIVersion: t.GroupVersion().String(), Kind: t.kind, Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.version,
	}
}
