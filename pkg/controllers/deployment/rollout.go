package deployment

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
)

// rolloutInput is the input of the pure functions that plan a sync. ReplicaSets are sorted by age, oldest first.
type rolloutInput struct {
	d      *appsv1.Deployment
	bounds bounds
	all    []replicaSet
	next   replicaSet // the oldest with the template of the Deployment; valid if found
	found  bool
	old    []replicaSet // all except next
	facts  facts
	now    time.Time
}

// sizing holds the target sizes of one strategy.
type sizing struct {
	create       *appsv1.ReplicaSet
	targets      []target
	deferred     []deferral
	requeueAfter time.Duration
}

// target is the target size of one ReplicaSet.
type target struct {
	replicaSet   replicaSet
	to           int
	intoCapacity bool // the new ReplicaSet of a rolling update gets free capacity
	annotate     bool // write the size annotations even if the size is right
}

func newRolloutInput(d *appsv1.Deployment, sets []replicaSet, now time.Time) rolloutInput {
	in := rolloutInput{d: d, bounds: boundsOf(d), now: now}
	in.all = slices.SortedFunc(slices.Values(sets), compareAge)
	in.old = in.all
	if i := slices.IndexFunc(in.all, func(s replicaSet) bool { return s.current }); i >= 0 {
		in.next, in.found, in.old = in.all[i], true, slices.Concat(in.all[:i], in.all[i+1:])
	}
	return in
}

// makePlan plans a sync. The plan depends only on the input.
func (in rolloutInput) makePlan() plan {
	// 1. Only the status of a Deployment that is being deleted is written.
	d := in.d
	if d.DeletionTimestamp != nil {
		return plan{input: in, result: rolloutResult{observed: true}}
	}

	// 2. Find the sizes.
	var s sizing
	scales := d.Spec.Paused || in.scalingEvent()
	rolls := !scales && d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
	switch {
	case scales:
		s = in.scaleTargets()
	case rolls:
		s = in.rollingTargets()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		s = in.recreateTargets()
	}

	// 3. If the new ReplicaSet cannot be created, keep the pods of the old ones.
	out := plan{input: in}
	if s.create != nil && in.facts.createDeferred != "" {
		s.targets, s.deferred = nil, append(s.deferred, in.facts.createDeferred)
	} else {
		out.create, out.result = s.create, rolloutResult{observed: true, canProgress: !d.Spec.Paused}
	}

	// 4. Make one change for each ReplicaSet. Clients that see the generation observed may read the sizes, so it
	//    counts as observed only when the sizes follow from the spec and reliable statuses.
	out.changes, out.deferred = in.changesFor(s)
	out.capacity = in.capacity(out.create, out.changes)
	defers := func(reason deferral) bool { return slices.Contains(out.deferred, reason) }
	if defers(deferShrinkUnseen) || in.statusesUnreliable(out.changes) || !rolls && defers(deferPodsDiffer) {
		out.result.observed = false
	}

	out.result.created, out.result.changes = out.create, out.changes
	out.requeueAfter = timing.MinPositive(s.requeueAfter, in.facts.untilCreate)
	if defers(deferPodsDiffer) { // no event of a ReplicaSet has to follow
		out.requeueAfter = timing.MinPositive(out.requeueAfter, controller.ConsistencyRecheck)
	}

	// 5. Delete old ReplicaSets after the rollout and, as upstream, while paused.
	if d.Spec.Paused || !scales && out.create == nil && len(out.changes) == 0 && isComplete(d, d.Status) {
		out.delete = slices.DeleteFunc(in.beyondHistory(), func(rs *appsv1.ReplicaSet) bool {
			return slices.ContainsFunc(out.changes, func(c change) bool { return c.rs == rs })
		})
	}
	return out
}

// manyRejections in a row, over about 1.6 seconds, show a lasting policy.
const manyRejections = 6

// scalingEvent reports whether the Deployment was scaled after an active ReplicaSet got its size. A ReplicaSet
// that rejects its changes repeatedly does not count, or a policy could block the rollout. With the strategy
// Recreate the rollout sets all sizes anyway.
func (in rolloutInput) scalingEvent() bool {
	return in.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType &&
		slices.ContainsFunc(in.all, func(s replicaSet) bool { return s.isActive() && s.rejections < manyRejections && in.sizedForOther(s) })
}

// sizedForOther reports whether the annotation of a ReplicaSet has another number of replicas than the Deployment.
func (in rolloutInput) sizedForOther(s replicaSet) bool {
	desired, ok := sizeAnnotation(s.rs, desiredReplicasAnnotation)
	return ok && desired != in.bounds.replicas
}

func (in rolloutInput) changesFor(s sizing) (changes []change, deferred []deferral) {
	deferred = s.deferred
	sizedFor := sizeAnnotations(in.bounds)
	for _, t := range s.targets {
		c := change{rs: t.replicaSet.rs, from: t.replicaSet.size(), to: t.to}
		switch {
		case c.isRaise() && in.raiseTooEarly(t, s.targets):
			deferred = append(deferred, deferShrinkUnseen)
			continue
		case c.from != c.to || t.annotate:
			c.annotations = missingFrom(t.replicaSet.rs.Annotations, sizedFor)
		}
		if c.from != c.to || c.annotations != nil {
			changes = append(changes, c)
		}
	}
	if in.found {
		changes = in.describeNext(changes)
	}
	slices.Sort(deferred)
	return changes, slices.Compact(deferred)
}

// raiseTooEarly reports whether a raise has to wait until the status shows the last reduction: pods that are about
// to be deleted may still be counted as available, and other ReplicaSets would give up pods for them. Without other
// pods, if the plan empties all others, after a scaling, or if the pods cannot be deleted, a wait would cost pods.
// Then the raise is made, and the status is unreliable until it shows the raise.
func (in rolloutInput) raiseTooEarly(t target, targets []target) bool {
	if !t.intoCapacity || statusCaughtUp(t.replicaSet.rs) || t.replicaSet.failsToDelete() {
		return false
	}
	return slices.ContainsFunc(in.all, func(other replicaSet) bool {
		emptied := slices.ContainsFunc(targets, func(planned target) bool { return planned.replicaSet.rs == other.rs && planned.to == 0 })
		return other.rs != t.replicaSet.rs && other.isActive() && !emptied
	})
}

// statusesUnreliable reports whether the status of a ReplicaSet may count pods that are about to be deleted, now or
// after the changes.
func (in rolloutInput) statusesUnreliable(changes []change) bool {
	return slices.ContainsFunc(in.all, func(s replicaSet) bool { return s.statusUnreliable }) ||
		slices.ContainsFunc(changes, func(c change) bool { return c.isRaise() && !statusCaughtUp(c.rs) })
}

// capacity returns the value of plan.capacity. It is at least the capacity that the complete plan needs.
func (in rolloutInput) capacity(create *appsv1.ReplicaSet, changes []change) int {
	limit, sum := in.bounds.maxTotal()-in.facts.pendingOld, totalSize(in.all)
	if create != nil {
		sum += replicasOrOne(create.Spec.Replicas)
	} else {
		limit -= in.facts.pendingNew
	}
	after := sum
	for _, c := range changes {
		after += c.to - c.from
	}
	return max(limit, after) - sum
}

// describeNext adds the annotations, revision and minReadySeconds of the Deployment to the change of the new
// ReplicaSet.
func (in rolloutInput) describeNext(changes []change) []change {
	rs := in.next.rs
	annotations := missingFrom(rs.Annotations, nextAnnotations(in.d, rs.Annotations, in.old))
	differs := rs.Spec.MinReadySeconds != in.d.Spec.MinReadySeconds
	if annotations == nil && !differs {
		return changes
	}
	i := slices.IndexFunc(changes, func(c change) bool { return c.rs == rs })
	if i < 0 {
		i = len(changes)
		changes = append(changes, change{rs: rs, from: in.next.size(), to: in.next.size()})
	}
	c := &changes[i]
	if c.annotations == nil {
		c.annotations = annotations
	} else {
		maps.Copy(c.annotations, annotations)
	}
	if differs {
		c.minReadySeconds = new(in.d.Spec.MinReadySeconds)
	}
	return changes
}
