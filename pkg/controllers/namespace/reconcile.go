package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

// syncTimeout ends a sync that is held up at many requests in a row, before the loop counts as stuck.
const syncTimeout = 100 * time.Second

// discoveryKey is what watches on APIServices are armed for, being of use to all namespaces.
const discoveryKey = ""

// followUp is what a sync wants to happen next.
type followUp struct {
	after   time.Duration     // until the next sync; 0: wait for an event
	targets []target          // what to watch until then: a deletion among them brings a sync earlier
	rest    time.Duration     // least time between two syncs that targets bring
	content *discovery.Answer // of the discovery of this sync, nil if there was none; the APIServices that failed in it are watched, too
}

// reconcile takes a deleted namespace as far as it can go now. An error means that requests failed; that something remains is
// none.
func (c *Controller) reconcile(ctx context.Context, name string) (controller.Result, error) {
	cached, ok := c.deps.Namespaces.Get(cache.NewObjectName("", name))
	if !ok || cached.DeletionTimestamp == nil {
		c.forget(ctx, name)
		return controller.Result{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	next, err := c.sync(bounded, name)
	if errors.Is(err, errRetry) {
		next.after, err = minRecheck, nil
	}
	c.triggers.arm(ctx, name, next.targets, next.rest) // for longer than this sync
	if next.content != nil {
		c.triggers.arm(ctx, discoveryKey, discoveryTargets(*next.content), 0)
	}
	return controller.Result{RequeueAfter: next.after}, err
}

// sync reads the namespace and, if it is being deleted and somebody has to finish it, takes it further.
func (c *Controller) sync(ctx context.Context, name string) (followUp, error) {
	ns, err := c.read(ctx, name)
	if err != nil {
		return followUp{}, err
	}
	if ns == nil || ns.DeletionTimestamp == nil || len(ns.Spec.Finalizers) == 0 {
		c.forget(ctx, name)
		return followUp{}, nil
	}
	return c.advance(ctx, ns)
}

// advance takes a namespace as far as it can go now. The order of its steps is the promise of the package, and stands here only. The
// namespace waits for the gate, or for something that is told (hold), or is finished (finish), or is found to be gone (forget), or the next
// sync goes on at once.
func (c *Controller) advance(ctx context.Context, ns *corev1.Namespace) (followUp, error) {
	// 1. The pods, which wait for nothing.
	m := c.memory(ns)
	now := c.deps.Clock.Now() // before the first request for content: what is sent from here on is later than this
	seen := c.deletions.note(ns.UID, now)
	m.settled = seen.Add(longestCreate)
	p := c.newPurger(ns, m, now)
	defer c.end(p)
	pods := p.purge(ctx, discovery.Pods)

	// 2. The gate: when types other than pods may be deleted.
	gate := seen.Add(max(c.cfg.Grace, minGrace))
	if judgePods(pods, now, gate, discovery.Answer{}) == podsEarly {
		c.metrics.show(ns.Name, report{}, []string{causeGrace})
		return followUp{after: max(gate.Sub(c.deps.Clock.Now()), time.Millisecond)}, nil
	}

	// 3. Discovery: which types there are.
	asked := c.deps.Clock.Now()
	known, pause, err := c.catalogue.Read(ctx, discoverySince(seen, gate, now))
	if err != nil {
		return followUp{}, fmt.Errorf("discover: %w", err)
	}
	r := report{began: now.Add(c.deps.Clock.Since(asked)), content: known, outcomes: []typeResult{pods}}

	// 4. As long as the pods are not proven gone, nothing else is touched.
	if judgePods(pods, now, gate, known) != podsGone {
		if pods.unserved && known.Has(discovery.Pods.GroupResource()) {
			r.outcomes[0].err = listFailed(discovery.Pods, errHidden)
		}
		if now.Before(gate) {
			pause = min(max(pause, minRecheck), gate.Sub(now))
		}
		return c.hold(ctx, ns, m, r, pause)
	}

	// 5. All other types. Before the first delete it is asked whether the namespace still is the one that was read.
	v, r, pause, err := c.purgeOthers(ctx, ns, m, p, r, pause)
	if errors.Is(err, errReplaced) {
		c.forget(ctx, ns.Name) // finished by somebody else; a new one of that name has events of its own
		return followUp{}, nil
	}
	if err != nil {
		return followUp{}, err
	}

	// 6. The end.
	switch v {
	case empty:
		return c.finish(ctx, ns, r)
	case unfinished, unproven: // nothing is known to be in the way
		c.metrics.show(ns.Name, r, nil)
		return followUp{after: time.Millisecond, content: &r.content}, r.stopped()
	default:
		return c.hold(ctx, ns, m, r, pause)
	}
}

// discoverySince is from when on a discovery will do in a sync that began at now: since the deletion before the gate, since the gate after it.
func discoverySince(seen, gate, now time.Time) time.Time {
	if !now.Before(gate) {
		return gate
	}
	return seen
}

// errReplaced: the namespace is not the one any more whose content was to be deleted.
var errReplaced = errors.New("the namespace is gone")

// stillThere returns an error unless the namespace exists. Another one of its name is another.
func (c *Controller) stillThere(ctx context.Context, ns *corev1.Namespace) error {
	now, err := c.read(ctx, ns.Name)
	if err == nil && (now == nil || now.UID != ns.UID) {
		return errReplaced
	}
	return err
}

// errHidden: discovery shows the type, yet listing it is answered with 404, or listing pods with 405.
var errHidden = errors.New("the API server shows the type in its discovery and does not list it")

// purgeOthers deletes the types other than pods and judges what is left. It returns the report with their outcomes, and for how long a discovery
// that was incomplete is not to be repeated: pause, unless it was repeated here.
func (c *Controller) purgeOthers(
	ctx context.Context, ns *corev1.Namespace, m *memory, p *purger, r report, pause time.Duration,
) (verdict, report, time.Duration, error) {
	pods := r.outcomes[0]
	v := unproven
	pass, stop := context.WithCancel(ctx)
	defer stop()
	var refusal error
	p.permit = sync.OnceValue(func() error {
		if refusal = c.stillThere(pass, ns); refusal != nil {
			stop()
		}
		return refusal
	})
	p.until = c.deps.Clock.Now().Add(passBudget) // that of the pods may be over
	for range 2 {                                // the second time for what was seen empty too long ago, or has come meanwhile
		p.content = r.content
		r.outcomes = append([]typeResult{pods}, p.purgeAll(pass, m.notYetEmpty(others(r.content)))...)
		if refusal != nil {
			return "", r, 0, refusal
		}
		if r.hidden() {
			var err error
			if pause, err = c.rediscover(ctx, &r); err != nil {
				return "", r, 0, err
			}
		}
		m.note(r.outcomes[1:])
		now := c.deps.Clock.Now()
		if v = judge(r, proven(others(r.content), m.emptyTypes, now)); v != unproven {
			break
		}
		m.expire(now)
	}
	return v, r, pause, nil
}

// rediscover finds out what has become of types whose list was answered with 404, by a discovery sent after that. Types that it does not
// show are gone. A type that it shows proves nothing: its server may be restarting, or may not have heard of the type yet. It returns for how
// long a discovery that was incomplete is not to be repeated.
func (c *Controller) rediscover(ctx context.Context, r *report) (time.Duration, error) {
	asked := c.deps.Clock.Now()
	known, pause, err := c.catalogue.Read(ctx, asked)
	if err != nil {
		return 0, fmt.Errorf("discover: %w", err)
	}
	r.began, r.content = r.began.Add(c.deps.Clock.Since(asked)), known
	outcomes := r.outcomes[:1] // the pods have been judged
	for _, o := range r.outcomes[1:] {
		if o.hidden() {
			if known.Complete() && !known.Has(o.resource.GroupResource()) {
				continue
			}
			o.err = listFailed(o.resource, errHidden)
		}
		outcomes = append(outcomes, o)
	}
	r.outcomes = outcomes
	return pause, nil
}

// hold tells users what the namespace waits for, and decides when the next sync is due.
func (c *Controller) hold(ctx context.Context, ns *corev1.Namespace, m *memory, r report, pause time.Duration) (followUp, error) {
	if err := r.stopped(); err != nil {
		return followUp{}, err
	}
	next := followUp{targets: contentTargets(ns.Name, r), content: &r.content}
	ns = c.writeConditions(ctx, ns, r)
	b := blockerOf(r)
	now := c.deps.Clock.Now()
	c.metrics.show(ns.Name, r, b.causes)
	var say bool
	if m.notice, say = m.notice.next(b.identity, now); say {
		c.deps.Recorder.Event(ns, corev1.EventTypeWarning, "NamespaceDeletionBlocked", "Deletion waits: "+b.text)
	}
	if r.pending() > 0 {
		next.after = time.Millisecond // first to the types that the pass had no time for
		return next, nil
	}
	m.verifyAgain(now)
	waits := func(err error) bool { return errors.Is(err, errNotTried) } // for another namespace to try
	if errs := slices.DeleteFunc(r.errs(), waits); len(errs) > 0 {
		return next, errors.Join(errs...)
	}
	klog.FromContext(ctx).V(4).Info("Namespace deletion waits", "namespace", ns.Name, "for", b.text)
	m.wait = m.wait.next(r.scene(), now)
	next.after = recheck(r, m.wait.pause, pause, m.notice.due(now))
	if !r.deleted() {
		next.rest = restAfter(now.Sub(r.began))
		next.after = max(next.after, next.rest)
	}
	return next, nil
}

// recheck is the time until the next sync: that of the content's back-off if any remains, and of the discovery's if that is
// incomplete, but no later than when an Event may be due.
func recheck(r report, contentPause, discoveryPause, event time.Duration) time.Duration {
	after := maxRecheck
	if r.remaining() > 0 {
		after = contentPause
	}
	if discoveryPause > 0 {
		if r.remaining() == 0 {
			after = discoveryPause
		}
		after = min(after, discoveryPause)
	}
	if event > 0 {
		after = min(after, event)
	}
	return max(after, time.Millisecond)
}

// finish finalizes a namespace whose content is proven gone.
func (c *Controller) finish(ctx context.Context, ns *corev1.Namespace, r report) (followUp, error) {
	if err := ctx.Err(); err != nil {
		return followUp{}, err
	}
	if !goesWithUs(ns) {
		r.finalizers = heldBy(ns)
		ns = c.writeConditions(ctx, ns, r)
	}
	if ourFinalizer(ns) {
		seen := c.deletions.note(ns.UID, c.deps.Clock.Now()) // not later: when the namespace goes, so does the note
		done, err := c.finalize(ctx, ns)
		if err != nil {
			return followUp{}, err
		}
		if took := c.deps.Clock.Since(seen); done {
			c.metrics.finished(took)
			klog.FromContext(ctx).V(2).Info("Finalized namespace", "namespace", ns.Name, "took", took)
		}
	}
	c.forget(ctx, ns.Name)
	return followUp{content: &r.content}, nil
}

// notYetEmpty returns the types that were not seen empty yet. Those that failed most often come last, lest they take the others' time in
// every pass.
func (m *memory) notYetEmpty(types []discovery.Type) []discovery.Type {
	var todo []discovery.Type
	for _, r := range types {
		_, ok := m.emptyTypes[r]
		if _, stale := m.stale[unique.Make(r)]; !ok && !stale {
			todo = append(todo, r)
		}
	}
	slices.SortStableFunc(todo, func(a, b discovery.Type) int { return cmp.Compare(m.failures[a], m.failures[b]) })
	return todo
}

// note takes in which types were found empty, and which failed.
func (m *memory) note(outcomes []typeResult) {
	for _, o := range outcomes {
		switch {
		case o.pending || errors.Is(o.err, errNotTried):
		case o.err != nil:
			m.failures[o.resource]++
		case o.remaining == 0:
			o.listing.lasting = !o.listing.sent.Before(m.settled)
			m.emptyTypes[o.resource] = o.listing
		}
	}
}

// verifyAgain has all types listed again at the end. Of an old list only the type is kept: a thousand namespaces may
// wait for days.
func (m *memory) verifyAgain(now time.Time) {
	recent := map[discovery.Type]listing{}
	for r, s := range m.emptyTypes {
		if s.lasting = false; s.expired(now) {
			m.stale[unique.Make(r)] = struct{}{}
		} else {
			recent[r] = s
		}
	}
	m.emptyTypes = recent
}

// expire forgets the types that were seen empty too long ago.
func (m *memory) expire(now time.Time) {
	clear(m.stale)
	maps.DeleteFunc(m.emptyTypes, func(_ discovery.Type, s listing) bool { return s.expired(now) })
}

// memory returns what is remembered of the namespace. Only the one sync that runs for it may use it.
func (c *Controller) memory(ns *corev1.Namespace) *memory {
	c.lock.Lock()
	defer c.lock.Unlock()
	if m, ok := c.memories[ns.Name]; ok && m.uid == ns.UID {
		return m
	}
	m := &memory{uid: ns.UID, emptyTypes: map[discovery.Type]listing{}, stale: map[unique.Handle[discovery.Type]]struct{}{}, failures: map[discovery.Type]int{}, strides: newStrides()}
	c.memories[ns.Name] = m
	return m
}

// forget ends all that is remembered and shown of a namespace.
func (c *Controller) forget(ctx context.Context, name string) {
	c.lock.Lock()
	delete(c.memories, name)
	c.lock.Unlock()
	c.metrics.clear(name)
	c.triggers.arm(ctx, name, nil, 0)
}
