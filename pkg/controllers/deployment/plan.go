package deployment

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// plan is what one pass does, in this order:
//
//  1. create. If it fails nothing else is written but the status: no capacity is given up for a ReplicaSet that may not exist.
//  2. changes that do not raise, all at once, then, when each was answered, those that raisesAfter gives for those of them that were carried out. One that
//     was refused or not answered was not: its pods keep their room.
//  3. status and revision, in one request. If a change was not carried out as planned, they are those of the outcome with what was, not observed.
//  4. delete.
//
// Whatever is cut off at the end leaves a state within the bounds, from which the next pass goes on.
type plan struct {
	create   *appsv1.ReplicaSet   // nil: none
	changes  []change             // at most one for each ReplicaSet, those that raise nothing first
	capacity int                  // by how many pods sizes may rise after create, before other changes make room; less than 0: those must make some first
	result   passResult           // if all of it is carried out
	delete   []*appsv1.ReplicaSet // lowest revision first

	deferred     []deferral    // why something that is wanted is not done
	requeueAfter time.Duration // plan again after, if no event comes; 0: no need
}

// raisesAfter returns the changes that raise, in their order, given that the changes in done were carried out. Room is handed out in that order: a change for
// which there is too little is cut to what there is, and one that gets none keeps only what does not belong to the size.
func (p plan) raisesAfter(done []change) (raises []change) {
	room := p.capacity
	for _, c := range done {
		room += c.from - c.to
	}
	for _, c := range p.changes {
		if !c.isRaise() {
			continue
		}
		c.to = min(c.to, c.from+max(0, room))
		room -= c.to - c.from
		if !c.isRaise() {
			c = c.withoutSize()
		}
		if c.isRaise() || c.annotations != nil || c.minReadySeconds != nil {
			raises = append(raises, c)
		}
	}
	return raises
}

// with returns the plan after its create, with the ReplicaSet that came of it.
func (p plan) withCreated(created *appsv1.ReplicaSet) plan {
	p.changes = slices.Clone(p.changes)
	for i := range p.changes {
		if p.changes[i].rs == p.create {
			p.changes[i].rs = created
		}
	}
	return p
}

// change is one write to one ReplicaSet.
type change struct {
	rs              *appsv1.ReplicaSet // as it was read; the one in plan.create, if it is raised in the pass that creates it
	from, to        int                // its size; equal: only annotations or minReadySeconds change
	reason          resizeReason       // of the size
	annotations     map[string]string  // to set; others stay
	minReadySeconds *int32             // nil: it stays
}

func (c change) isRaise() bool { return c.to > c.from }

// unsized returns the change without the size, and without the annotations that tell what it was made for.
func (c change) withoutSize() change {
	c.to, c.reason = c.from, ""
	c.annotations = maps.Clone(c.annotations)
	maps.DeleteFunc(c.annotations, func(key, _ string) bool { return key == desiredReplicasAnnotation || key == maxReplicasAnnotation })
	if len(c.annotations) == 0 {
		c.annotations = nil
	}
	return c
}

// why says for what reason a ReplicaSet gets another size. The words are for logs.
type resizeReason string

const (
	resizeIntoCapacity resizeReason = "surge is free"
	resizeUnavailable  resizeReason = "pods not available"
	resizeSpare        resizeReason = "available above the minimum"
	resizeExcess       resizeReason = "more than the Deployment's replicas"
	resizeScaled       resizeReason = "Deployment was scaled"
	resizeSaturated    resizeReason = "new ReplicaSet is complete"
	resizeRecreate     resizeReason = "replaced by the new ReplicaSet"
	resizeOldStopped   resizeReason = "pods of old ReplicaSets are gone"
)

// hold says why something that is wanted is not done yet. The words are label values of a metric.
type deferral string

const (
	deferShrinkUnseen  deferral = "shrink_unseen"     // no raise before the ReplicaSet controller is known to have carried out the reduction before
	deferShrinking     deferral = "shrinking"         // an old ReplicaSet gives up no more before its controller has acted on the reduction before, or has had the time
	deferPodsDiffer    deferral = "pods_differ"       // the cache and the statuses show different numbers of available pods
	deferOldPods       deferral = "old_pods"          // Recreate: pods of old ReplicaSets are not gone
	deferCreateBackoff deferral = "create_backoff"    // a create was refused, or modified, or its name is taken
	deferResizeBackoff deferral = "resize_backoff"    // a change of a ReplicaSet was
	deferResizeUnknown deferral = "resize_unanswered" // a change of a ReplicaSet has an unknown outcome: nothing else is decided
	deferTerminating   deferral = "terminating"       // the namespace is terminating
)

// facts are what a pass knows besides the Deployment and its ReplicaSets.
type facts struct {
	terminatingReplicas bool     // the status tells how many pods are terminating
	createDeferred      deferral // why no ReplicaSet is to be created; empty: nothing is in the way
	pendingNew          int      // pods of a ReplicaSet for the present template whose create was not answered
	pendingOld          int      // pods of ReplicaSets whose create was not answered and that are not for the present template
}
