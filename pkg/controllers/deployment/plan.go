package deployment

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// plan is the work of one sync, in the order of execution:
//
//  1. Create the new ReplicaSet. If the create fails, only the status is written: no capacity is given up for a
//     ReplicaSet that may not exist.
//  2. Apply the changes that are no raises, in parallel. Then apply the raises that raisesAfter returns for the
//     changes that succeeded. The pods of a change that was rejected or has an unknown outcome keep their capacity.
//  3. Write the status of the result.
//  4. Delete ReplicaSets beyond the history limit.
//
// Every prefix of a plan keeps the sizes within the bounds, and the next sync continues from there.
type plan struct {
	input    rolloutInput
	create   *appsv1.ReplicaSet // nil if none is needed
	changes  []change           // at most one per ReplicaSet
	capacity int                // pods that raises may add before any reduction; negative if sizes must shrink first
	result   rolloutResult      // of the complete plan
	delete   []*appsv1.ReplicaSet

	deferred     []deferral
	requeueAfter time.Duration // 0 if an event follows
}

// raisesAfter returns the raises of the plan, given the changes that succeeded. A raise beyond the capacity is
// reduced. A raise without any capacity only writes minReadySeconds and the annotations that do not belong to the
// size.
func (p plan) raisesAfter(done []change) (raises []change) {
	capacity := p.capacity
	for _, c := range done {
		capacity += c.from - c.to
	}
	for _, c := range p.changes {
		if !c.isRaise() {
			continue
		}
		c.to = min(c.to, c.from+max(0, capacity))
		capacity -= c.to - c.from
		if !c.isRaise() {
			c.annotations = maps.Clone(c.annotations)
			delete(c.annotations, desiredReplicasAnnotation)
			delete(c.annotations, maxReplicasAnnotation)
		}
		if c.isRaise() || len(c.annotations) > 0 || c.minReadySeconds != nil {
			raises = append(raises, c)
		}
	}
	return raises
}

// change is one PATCH of one ReplicaSet.
type change struct {
	rs              *appsv1.ReplicaSet // as it was read, or plan.create
	from, to        int                // replicas
	annotations     map[string]string  // to set
	minReadySeconds *int32             // nil if unchanged
}

func (c change) isRaise() bool { return c.to > c.from }

// deferral is the reason why a sync leaves part of its work for later, and a label value of a metric.
type deferral string

const (
	deferShrinkUnseen  deferral = "shrink_unseen"  // a raise or Recreate waits for the status of the last reduction
	deferShrinking     deferral = "shrinking"      // an old ReplicaSet has not acted on its last size
	deferPodsDiffer    deferral = "pods_differ"    // pod cache and statuses show different numbers of available pods
	deferOldPods       deferral = "old_pods"       // strategy Recreate: old pods have not stopped
	deferCreateBackoff deferral = "create_backoff" // a create was rejected or modified, or its name is taken
	deferResizeBackoff deferral = "resize_backoff" // a change was rejected
	deferResizeUnknown deferral = "resize_unknown" // a change has an unknown outcome
	deferTerminating   deferral = "terminating"    // the namespace is being deleted
)

// facts holds the input of a plan besides the Deployment and its ReplicaSets.
type facts struct {
	terminatingReplicas bool          // the feature gate
	createDeferred      deferral      // no ReplicaSet can be created
	untilCreate         time.Duration // remaining back-off of a deferred create; 0 if an event follows
	pendingNew          int           // pods of the new ReplicaSet, if its create has an unknown outcome
	pendingOld          int           // pods of other ReplicaSets whose create has an unknown outcome
}
