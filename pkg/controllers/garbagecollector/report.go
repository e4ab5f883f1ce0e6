package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// Reasons of events. The first is kube-controller-manager's.
const (
	eventInvalidNamespace = "OwnerRefInvalidNamespace"
	eventForeground       = "ForegroundDeletionBlocked"
	eventOrphan           = "OrphanDeletionBlocked"
)

// lastingRejections is the number of rejected deletes of one object, 1 + 2 + ... + 32 s apart, after which a dry run counts the object as lasting.
const lastingRejections = 7

// hindrance is what is known of what holds an owner.
type hindrance struct {
	all     int      // dependents
	some    []object // of them
	blind   []blind
	refused string // why the last request has failed
}

// wait notes why an owner is held, tells its users when it has been for long, and says when to look again.
func (c *Controller) wait(ctx context.Context, key id, owner object, n next, h hindrance) controller.Result {
	now := c.deps.Clock.Now()
	var m ownerMemory
	c.memories.note(key, func(known *ownerMemory) {
		if n.why == byRejection && !known.told { // once: events say more
			known.told = true
			klog.FromContext(ctx).Info("Request was rejected", "resource", owner.resource, "object", klog.KRef(owner.namespace, owner.name), "uid", owner.uid, "reason", h.refused)
		}
		known.why = n.why
		looked := h.refused == "" || h.all+len(h.blind) > 0
		if holders := h.all + len(h.blind); known.moved.IsZero() || looked && known.holders != holders {
			known.holders, known.moved = holders, now
		}
		m = *known
	})
	waited := now.Sub(m.since)
	if waited < noticeAfter {
		return controller.Result{RequeueAfter: min(n.after, noticeAfter-waited)}
	}
	pause := noticeAfter
	if h.refused == "" && !m.moved.After(m.notice.at) { // to read the same blockers again shows nothing new
		pause = noticeAgain
	}
	if !m.notice.at.IsZero() && now.Sub(m.notice.at) < pause {
		return controller.Result{RequeueAfter: n.after}
	}
	reason, text := eventForeground, ""
	if m.orphaning {
		reason, text = eventOrphan, explainOrphaning(h.all, h.blind)
	} else {
		text = explainForeground(h.all, c.blockers(ctx, h.some), h.blind)
	}
	if h.refused != "" {
		text = strings.TrimSpace(text + " The last request failed: " + h.refused)
	}
	if m.notice.due(text, waited, now) {
		c.event(ctx, owner, reason, text)
		c.memories.note(key, func(known *ownerMemory) { known.notice = notice{text, now} })
	}
	return controller.Result{RequeueAfter: n.after}
}

// blockers finds out what holds dependents. Their finalizers only a read can tell.
func (c *Controller) blockers(ctx context.Context, all []object) []blocker {
	var some []blocker
	for _, o := range all {
		key := keyed(o)
		b := blocker{object: o, refused: c.memories.object(key).refused}
		if d, ok := c.graph.dependentsOf(key, 0); ok {
			b.own = d.blocking
		}
		if o.marks.has(terminating) { // the event that it is gone may have been missed, and it would hold its owner for ever
			if now, err := c.reread(ctx, c.types.state(o.resource).apiType, o); err == nil && now != nil {
				b.finalizers = foreign(now.live.Finalizers)
			}
		} else {
			v := c.owners.view(o, c.graph.against(o), c.deps.Clock.Now())
			if n, why := v.obscure(); n >= 0 {
				b.unknown, b.why = o.refs[n], why
			}
		}
		some = append(some, b)
	}
	return some
}

// foreign are the finalizers that are not the garbage collector's.
func foreign(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

// remember keeps why an object is not deleted although nobody knows of an owner that lives.
func (c *Controller) remember(o object, a action, v view) {
	key := keyed(o)
	m := c.memories.object(key)
	switch a.do {
	case await:
		m.held = v.held
	case remove, release:
		m.held = ""
	default:
		m = objectMemory{told: m.told}
	}
	n := v.unreachable()
	switch {
	case n < 0:
		m.told = false
	case !m.told:
		m.told = true
		c.deps.Recorder.Event(c.referenceTo(o), corev1.EventTypeWarning, eventInvalidNamespace, invalidNamespace(o.refs[n], o.namespace))
	}
	c.memories.setObject(key, m)
}

// failed keeps what a request was answered that is to be repeated: that is what holds the owner of the object meanwhile. What the end of the term has cut
// short has not failed.
func (c *Controller) failed(o object, a action, err error) {
	c.busy(o, err)
	if errors.Is(err, context.Canceled) {
		return
	}
	key := keyed(o)
	c.memories.setObject(key, c.memories.object(key).fail(outcome.EventMessage(err)))
}

// busy keeps that others are in line, if that is what an error says.
func (c *Controller) busy(o object, err error) {
	if errors.Is(err, errBusy) {
		key := keyed(o)
		m := c.memories.object(key)
		m.held = string(byLine)
		c.memories.setObject(key, m)
	}
}

// refused keeps what a request was answered that was rejected, and returns when to try again. A policy may keep thousands of objects, so that is told once
// for each of them.
func (c *Controller) refused(ctx context.Context, o object, a action, err error) time.Duration {
	key, now := keyed(o), c.deps.Clock.Now()
	m := c.memories.object(key).reject(a.do, err.Error(), c.memories.rejections, now)
	m.version = o.version
	c.memories.setObject(key, m)
	if a.do == remove && m.times == lastingRejections && errors.Is(err, errDryRun) {
		c.metrics.lasting.Inc()
	}
	level := klog.Level(2)
	if m.times == 1 {
		level = 0
	}
	klog.FromContext(ctx).V(int(level)).Info("Request was rejected", "resource", o.resource, "object", klog.KRef(o.namespace, o.name), "uid", o.uid, "reason", err, "times", m.times)
	return m.pause(a.do, now)
}

// recordDone counts a request that has succeeded.
func (c *Controller) recordDone(o object, v view, a action, got requestResult) {
	key := keyed(o)
	c.memories.setObject(key, objectMemory{})
	if got != done {
		return
	}
	now := c.deps.Clock.Now()
	var last time.Time
	for _, j := range v.of {
		last = timing.Later(last, j.gone)
	}
	if a.do == release {
		c.metrics.released.Inc()
		return
	}
	c.metrics.removed.WithLabelValues(string(a.policy)).Inc()
	if !last.IsZero() {
		c.metrics.latency.Observe(now.Sub(last).Seconds())
	}
}

// event tells of an object. A namespace that is being deleted takes no events, so there they are told of the namespace itself.
func (c *Controller) event(ctx context.Context, about object, reason, text string) {
	to := c.referenceTo(about)
	if about.namespace != "" {
		namespace := object{resource: schema.GroupResource{Resource: "namespaces"}, name: about.namespace}
		now, says, err := c.writer.read(ctx, apiType{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}, namespace)
		if err == nil && says == found && now.marks.has(terminating) {
			to = &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: now.name, UID: now.uid}
			text = fmt.Sprintf("%s %q: %s", about.resource, about.name, text)
		}
	}
	c.deps.Recorder.Event(to, corev1.EventTypeWarning, reason, text)
}

func (c *Controller) referenceTo(o object) *corev1.ObjectReference {
	t := c.types.state(o.resource)
	return &corev1.ObjectReference{
		APIVersion: t.GroupVersion().String(), Kind: t.kind, Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.version,
	}
}
