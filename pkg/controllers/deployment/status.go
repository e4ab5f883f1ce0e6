package deployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// rolloutResult is the result of a plan, complete or as far as applied.
type rolloutResult struct {
	created       *appsv1.ReplicaSet
	changes       []change
	collision     bool   // the name of the new ReplicaSet was taken
	createFailure string // message of the condition Progressing
	observed      bool   // the sizes are those of the generation
	canProgress   bool   // false while the rollout is paused or cannot create its ReplicaSet
}

func (in rolloutInput) newStatus(r rolloutResult) appsv1.DeploymentStatus {
	status := in.statusCounts(r)
	if r.observed {
		status.ObservedGeneration = in.d.Generation
	}
	if r.collision {
		status.CollisionCount = new(int32(min(int64(ptr.Deref(status.CollisionCount, 0))+1, math.MaxInt32)))
	}
	c := conditions{list: status.Conditions, now: in.now}
	if int(status.AvailableReplicas) >= in.bounds.minAvailable() {
		c.set(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		c.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	if in.d.DeletionTimestamp == nil {
		in.setProgressing(r, status, &c)
		in.setReplicaFailure(&c)
	}
	status.Conditions = c.list
	return status
}

// statusCounts returns the last status with new counts. Sizes are those after the writes.
func (in rolloutInput) statusCounts(r rolloutResult) appsv1.DeploymentStatus {
	var size, replicas, ready, available, terminating int64
	known := in.facts.terminatingReplicas
	for _, s := range in.all {
		size += int64(s.size())
		replicas += int64(s.rs.Status.Replicas)
		ready += int64(s.rs.Status.ReadyReplicas)
		available += int64(s.rs.Status.AvailableReplicas)
		terminating += int64(ptr.Deref(s.rs.Status.TerminatingReplicas, 0))
		if s.rs.Status.TerminatingReplicas == nil && s.rs.Status.ObservedGeneration != 0 {
			known = false
		}
	}
	if r.created != nil {
		size += int64(replicasOrOne(r.created.Spec.Replicas))
	}
	for _, c := range r.changes {
		size += int64(c.to - c.from)
	}
	status := *in.d.Status.DeepCopy()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = count(replicas), count(ready), count(available)
	status.UnavailableReplicas = count(size - available)
	status.UpdatedReplicas = 0
	if in.found {
		status.UpdatedReplicas = count(int64(in.next.rs.Status.Replicas))
	}
	status.TerminatingReplicas = nil
	if known {
		status.TerminatingReplicas = new(count(terminating))
	}
	return status
}

// setProgressing updates the condition Progressing of a Deployment with a deadline.
func (in rolloutInput) setProgressing(r rolloutResult, status appsv1.DeploymentStatus, c *conditions) {
	const about = appsv1.DeploymentProgressing
	if progressDeadline(in.d) == 0 {
		c.remove(about)
		return
	}
	if r.createFailure != "" {
		c.set(about, corev1.ConditionFalse, reasonCreateFailed, r.createFailure)
		return
	}
	subject, name := fmt.Sprintf("Deployment %q", in.d.Name), ""
	if next := in.nextAfter(r); next != nil {
		subject, name = fmt.Sprintf("ReplicaSet %q", next.Name), next.Name
	}

	// 1. Reset the condition if another rollout has started.
	has, ok := c.get(about)
	switch {
	case in.d.Spec.Paused && has.Reason == reasonPaused:
	case name == "":
		if r.canProgress && slices.ContainsFunc(in.old, func(s replicaSet) bool { return mentions(has, s.rs.Name) }) {
			c.renewProgressing(reasonProgressing, subject+" is progressing.")
		}
	case r.created != nil:
		c.renewProgressing(reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	case !ok || has.Reason == reasonCreateFailed || in.newRevision(r) != in.d.Annotations[revisionAnnotation] && !mentions(has, name):
		c.renewProgressing(reasonFound, fmt.Sprintf("Found new replica set %q", name))
	}

	// 2. Stop the clock of a paused Deployment.
	has, _ = c.get(about)
	switch {
	case in.d.Spec.Paused && has.Reason != reasonTimedOut:
		c.set(about, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !in.d.Spec.Paused && has.Reason == reasonPaused:
		c.set(about, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}

	// 3. Check the progress, unless the rollout was complete.
	has, _ = c.get(about)
	switch {
	case !r.canProgress || status.Replicas == status.UpdatedReplicas && has.Reason == reasonComplete:
	case isComplete(in.d, status):
		c.set(about, corev1.ConditionTrue, reasonComplete, subject+" has successfully progressed.")
	case progressed(in.d.Status, status):
		c.renewProgressing(reasonProgressing, subject+" is progressing.")
	case in.timedOut(has):
		c.set(about, corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.")
	}
}

// mentions reports whether the message of a condition names a ReplicaSet. The revision does not identify a rollout:
// applying a manifest can change the annotation.
func mentions(c appsv1.DeploymentCondition, name string) bool {
	return strings.Contains(c.Message, strconv.Quote(name))
}

// Reasons of the condition Progressing, as upstream.
const (
	reasonCreated      = "NewReplicaSetCreated"
	reasonFound        = "FoundNewReplicaSet"
	reasonProgressing  = "ReplicaSetUpdated"
	reasonComplete     = "NewReplicaSetAvailable"
	reasonTimedOut     = "ProgressDeadlineExceeded"
	reasonPaused       = "DeploymentPaused"
	reasonCreateFailed = "ReplicaSetCreateError"
)

func isComplete(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	replicas := replicasOrOne(d.Spec.Replicas)
	return int(status.UpdatedReplicas) == replicas && int(status.Replicas) == replicas && int(status.AvailableReplicas) == replicas &&
		status.ObservedGeneration >= d.Generation
}

// progressed reports whether a status shows more updated, ready or available pods than the last status, or fewer
// old pods.
func progressed(was, status appsv1.DeploymentStatus) bool {
	return status.UpdatedReplicas > was.UpdatedReplicas || status.Replicas-status.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		status.ReadyReplicas > was.ReadyReplicas || status.AvailableReplicas > was.AvailableReplicas
}

func (in rolloutInput) timedOut(progressing appsv1.DeploymentCondition) bool {
	switch progressing.Reason {
	case "", reasonComplete:
		return false
	case reasonTimedOut:
		return true
	}
	return progressing.LastUpdateTime.Add(progressDeadline(in.d)).Before(in.now)
}

// untilTimeout returns the time until the deadline of the rollout, or 0 if there is none.
func (in rolloutInput) untilTimeout(status appsv1.DeploymentStatus, r rolloutResult) time.Duration {
	c := conditions{list: status.Conditions}
	has, ok := c.get(appsv1.DeploymentProgressing)
	if !ok || !r.canProgress || progressDeadline(in.d) == 0 || isComplete(in.d, status) ||
		has.Reason == reasonComplete || has.Reason == reasonTimedOut {
		return 0
	}
	return max(has.LastUpdateTime.Add(progressDeadline(in.d)).Sub(in.now)+1, 1)
}

// progressDeadline returns 0 if there is none.
func progressDeadline(d *appsv1.Deployment) time.Duration {
	seconds := d.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds <= 0 || *seconds == math.MaxInt32 {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// setReplicaFailure copies the condition of the new ReplicaSet, or else of the oldest with that condition.
func (in rolloutInput) setReplicaFailure(c *conditions) {
	all := in.all
	if in.found {
		all = append([]replicaSet{in.next}, all...)
	}
	for _, s := range all {
		for _, failure := range s.rs.Status.Conditions {
			if failure.Type == appsv1.ReplicaSetReplicaFailure {
				c.put(appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: failure.Status, Reason: failure.Reason, Message: failure.Message,
					LastUpdateTime: failure.LastTransitionTime, LastTransitionTime: failure.LastTransitionTime,
				})
				return
			}
		}
	}
	c.remove(appsv1.DeploymentReplicaFailure)
}

// nextAfter returns the new ReplicaSet after the writes, or nil.
func (in rolloutInput) nextAfter(r rolloutResult) *appsv1.ReplicaSet {
	return cmp.Or(r.created, in.next.rs)
}

// newRevision returns the revision of the new ReplicaSet after the writes, or "".
func (in rolloutInput) newRevision(r rolloutResult) string {
	next := in.nextAfter(r)
	if next == nil {
		return ""
	}
	for _, c := range r.changes {
		if due, ok := c.annotations[revisionAnnotation]; ok && c.rs == next {
			return due
		}
	}
	return next.Annotations[revisionAnnotation]
}

func count(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
