package deployment

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"minikcm/pkg/controller"
)

// podsRecheck is how soon to plan again if pods that are no longer available hold something back: no event of a ReplicaSet needs to follow.
const podsRecheck = time.Second

// pass is what the parts of a rollout work on.
type pass struct {
	d      *appsv1.Deployment
	bounds bounds
	all    []replicaSet // the ReplicaSets that there are, oldest first
	next   replicaSet   // the one of the present template
	found  bool         // next exists
	old    []replicaSet // all others, oldest first
	facts  facts
	now    time.Time
}

// sizing is what a part of the rollout makes of the sizes.
type sizing struct {
	create       *appsv1.ReplicaSet // for the present template; nil: none
	targets      []target
	deferred     []deferral
	requeueAfter time.Duration // when what is held may be done though no event comes; 0: no need
}

// target is the size of one ReplicaSet.
type target struct {
	replicaSet replicaSet
	to         int
	reason     resizeReason
	annotate   bool // write sizeAnnotations even if the size is right
}

func planningPass(d *appsv1.Deployment, sets []replicaSet, now time.Time) pass {
	p := pass{d: d, bounds: boundsOf(d), now: now}
	p.all = slices.SortedFunc(slices.Values(sets), compareAge)
	p.old = p.all
	if i := slices.IndexFunc(p.all, func(s replicaSet) bool { return s.current }); i >= 0 {
		p.next, p.found, p.old = p.all[i], true, slices.Concat(p.all[:i], p.all[i+1:])
	}
	return p
}

// plan decides what to write. It depends on the pass alone, and not on the order of ReplicaSets.
func (p pass) makePlan() plan {
	// 1. A Deployment that is being deleted only gets a status.
	d := p.d
	if d.DeletionTimestamp != nil {
		return plan{result: passResult{observed: true}}
	}

	// 2. Sizes.
	var s sizing
	scales := d.Spec.Paused || p.scalingEvent()
	rolls := !scales && d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
	switch {
	case scales:
		s = p.scaleTargets()
	case rolls:
		s = p.rollingTargets()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		s = p.recreateTargets()
	}

	// 3. Nothing is given up for a new ReplicaSet that cannot be created.
	out := plan{create: s.create, result: passResult{observed: true, progressCounts: !d.Spec.Paused}}
	if s.create != nil && p.facts.createDeferred != "" {
		s.targets, s.deferred = nil, append(s.deferred, p.facts.createDeferred)
		out = plan{}
	}

	// 4. One write for each ReplicaSet that is to change.
	out.changes, out.deferred = p.changesFor(s)
	out.capacity = p.capacity(out.create, out.changes)
	holds := func(why deferral) bool { return slices.Contains(out.deferred, why) }
	if holds(deferShrinkUnseen) || p.statusesUnreliable(out.changes) || !rolls && (holds(deferPodsDiffer) || holds(deferResizeBackoff)) {
		out.result.observed = false // who sees the generation observed may read the sizes, and what became of them
	}

	out.result.created, out.result.changes = out.create, out.changes
	out.requeueAfter = s.requeueAfter
	if holds(deferPodsDiffer) {
		out.requeueAfter = controller.MinPositive(out.requeueAfter, podsRecheck)
	}

	// 5. History, once the rollout is over.
	if d.Spec.Paused || !scales && out.create == nil && len(out.changes) == 0 && isComplete(d, d.Status) {
		out.delete = slices.DeleteFunc(p.beyondHistory(), func(rs *appsv1.ReplicaSet) bool {
			return slices.ContainsFunc(out.changes, func(c change) bool { return c.rs == rs })
		})
	}
	return out
}

// scalingEvent reports whether the Deployment was scaled since a ReplicaSet with pods got its size. A ReplicaSet whose changes back off does not count, or it
// would block the rollout. With the strategy Recreate a rollout gives all ReplicaSets their sizes anyway.
func (p pass) scalingEvent() bool {
	return p.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType &&
		slices.ContainsFunc(p.all, func(s replicaSet) bool { return s.isActive() && s.backoff == 0 && p.sizedForOther(s) })
}

// sizedForThis reports whether a ReplicaSet tells that it was sized for the present number of replicas.
func (p pass) sizedForThis(s replicaSet) bool {
	desired, ok := sizeAnnotation(s.rs, desiredReplicasAnnotation)
	return ok && desired == p.bounds.replicas
}

// sizedForOther reports whether a ReplicaSet tells that it was sized for another number of replicas.
func (p pass) sizedForOther(s replicaSet) bool {
	desired, ok := sizeAnnotation(s.rs, desiredReplicasAnnotation)
	return ok && desired != p.bounds.replicas
}

// changes makes writes of targets.
func (p pass) changesFor(s sizing) (changes []change, held []deferral) {
	held = s.deferred
	sizedFor := sizeAnnotations(p.bounds)
	for _, t := range s.targets {
		c := change{rs: t.replicaSet.rs, from: t.replicaSet.size(), to: t.to, reason: t.reason}
		switch {
		case c.isRaise() && p.raiseTooEarly(t, s.targets):
			held = append(held, deferShrinkUnseen)
			continue
		case c.from != c.to || t.annotate:
			c.annotations = missingFrom(t.replicaSet.rs.Annotations, sizedFor)
		}
		if c.from != c.to || c.annotations != nil {
			changes = append(changes, c)
		}
	}
	if p.found {
		changes = p.describeNext(changes)
	}
	slices.SortStableFunc(changes, func(a, b change) int { // raises last
		switch {
		case a.isRaise() == b.isRaise():
			return 0
		case a.isRaise():
			return 1
		}
		return -1
	})
	slices.Sort(held)
	return changes, slices.Compact(held)
}

// tooEarly reports whether a ReplicaSet is not to be raised yet, because its status does not show the last reduction: its pods may still be those it had,
// counted as available and about to go. That matters where others keep pods that they may give up for those. If none does, or it cannot delete its pods, or
// the Deployment was scaled, each moment may cost pods that are wanted: it is raised, and doubtful.
func (p pass) raiseTooEarly(t target, targets []target) bool {
	if t.reason != resizeIntoCapacity || t.replicaSet.statusCaughtUp() || t.replicaSet.failsToDelete() {
		return false
	}
	return slices.ContainsFunc(p.all, func(other replicaSet) bool {
		emptied := slices.ContainsFunc(targets, func(t target) bool { return t.replicaSet.rs == other.rs && t.to == 0 })
		return other.rs != t.replicaSet.rs && other.isActive() && !emptied
	})
}

// unsure reports whether there is a ReplicaSet whose status may count pods that are about to go, also after changes.
func (p pass) statusesUnreliable(changes []change) bool {
	return slices.ContainsFunc(p.all, func(s replicaSet) bool { return s.statusUnreliable }) ||
		slices.ContainsFunc(changes, func(c change) bool { return c.isRaise() && !(replicaSet{rs: c.rs}).statusCaughtUp() })
}

// room returns by how many pods sizes may rise after the create and before any change that shrinks; negative: something has to shrink first. It is at least
// what the plan needs if all its changes are carried out.
func (p pass) capacity(create *appsv1.ReplicaSet, changes []change) int {
	limit, sum := p.bounds.maxTotal()-p.facts.pendingOld, totalSize(p.all)
	if create != nil {
		sum += replicasOrOne(create.Spec.Replicas)
	} else {
		limit -= p.facts.pendingNew
	}
	after := sum
	for _, c := range changes {
		after += c.to - c.from
	}
	return max(limit, after) - sum
}

// describeNext has the new ReplicaSet say what the Deployment says: annotations, revision and minReadySeconds.
func (p pass) describeNext(changes []change) []change {
	rs := p.next.rs
	annotations := missingFrom(rs.Annotations, nextAnnotations(p.d, rs.Annotations, p.old))
	differs := rs.Spec.MinReadySeconds != p.d.Spec.MinReadySeconds
	if annotations == nil && !differs {
		return changes
	}
	i := slices.IndexFunc(changes, func(c change) bool { return c.rs == rs })
	if i < 0 {
		i = len(changes)
		changes = append(changes, change{rs: rs, from: p.next.size(), to: p.next.size()})
	}
	c := &changes[i]
	if c.annotations == nil {
		c.annotations = annotations
	} else {
		maps.Copy(c.annotations, annotations)
	}
	if differs {
		c.minReadySeconds = new(p.d.Spec.MinReadySeconds)
	}
	return changes
}
