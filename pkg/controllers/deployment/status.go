package deployment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// applyResult is what a pass did, as far as the status reports it.
type passResult struct {
	created        *appsv1.ReplicaSet // for the present template; nil: none was
	changes        []change
	collision      bool   // the name of the new ReplicaSet was taken
	createFailure  string // message of the condition Progressing
	observed       bool   // the sizes are those that this generation of the Deployment asks for
	progressCounts bool   // progress counts
}

// status is the one that a Deployment has after a pass.
func (p pass) newStatus(o passResult) appsv1.DeploymentStatus {
	status := p.statusCounts(o)
	if o.observed {
		status.ObservedGeneration = p.d.Generation
	}
	if o.collision {
		status.CollisionCount = new(int32(min(int64(orZero(status.CollisionCount))+1, math.MaxInt32)))
	}
	c := conditions{list: status.Conditions, now: p.now}
	if int(status.AvailableReplicas) >= p.bounds.minAvailable() {
		c.set(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		c.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	if p.d.DeletionTimestamp == nil {
		p.setProgressing(o, status, &c)
		p.setReplicaFailure(&c)
	}
	status.Conditions = c.list
	return status
}

// counts is the old status with new numbers. The sizes of ReplicaSets are those after the pass.
func (p pass) statusCounts(o passResult) appsv1.DeploymentStatus {
	var size, replicas, ready, available, terminating int64
	known := p.facts.terminatingReplicas
	for _, s := range p.all {
		size += int64(s.size())
		replicas += int64(s.rs.Status.Replicas)
		ready += int64(s.rs.Status.ReadyReplicas)
		available += int64(s.rs.Status.AvailableReplicas)
		terminating += int64(orZero(s.rs.Status.TerminatingReplicas))
		if s.rs.Status.TerminatingReplicas == nil && s.rs.Status.ObservedGeneration != 0 {
			known = false // the ReplicaSet controller does not tell
		}
	}
	if o.created != nil {
		size += int64(replicasOrOne(o.created.Spec.Replicas))
	}
	for _, c := range o.changes {
		size += int64(c.to - c.from)
	}
	status := *p.d.Status.DeepCopy()
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = count(replicas), count(ready), count(available)
	status.UnavailableReplicas = count(size - available)
	status.UpdatedReplicas = 0
	if p.found {
		status.UpdatedReplicas = count(int64(p.next.rs.Status.Replicas))
	}
	status.TerminatingReplicas = nil
	if known {
		status.TerminatingReplicas = new(count(terminating))
	}
	return status
}

// progressing tells how the rollout goes on, if the Deployment has a deadline for that.
func (p pass) setProgressing(o passResult, status appsv1.DeploymentStatus, c *conditions) {
	const about = appsv1.DeploymentProgressing
	if p.progressDeadline() == 0 {
		c.remove(about)
		return
	}
	if o.createFailure != "" {
		c.set(about, corev1.ConditionFalse, reasonCreateFailed, o.createFailure)
		return
	}
	subject := fmt.Sprintf("Deployment %q", p.d.Name)
	name := p.nextName(o)
	if name != "" {
		subject = fmt.Sprintf("ReplicaSet %q", name)
	}

	// 1. Another rollout has begun, whatever was said about the last one: another ReplicaSet has become the new one, or old ones make way for it.
	has, ok := c.get(about)
	switch {
	case p.d.Spec.Paused && has.Reason == reasonPaused:
	case name == "":
		if o.progressCounts && slices.ContainsFunc(p.old, func(s replicaSet) bool { return mentions(has, s.rs.Name) }) {
			c.renew(about, corev1.ConditionTrue, reasonProgressing, subject+" is progressing.")
		}
	case o.created != nil:
		c.renew(about, corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	case !ok || has.Reason == reasonCreateFailed || p.newRevision(o) != p.d.Annotations[revisionAnnotation] && !mentions(has, name):
		c.renew(about, corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", name))
	}

	// 2. While a Deployment is paused no time counts.
	has, _ = c.get(about)
	switch {
	case p.d.Spec.Paused && has.Reason != reasonTimedOut:
		c.set(about, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !p.d.Spec.Paused && has.Reason == reasonPaused:
		c.set(about, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}

	// 3. Progress. A rollout that was complete is not judged again.
	has, _ = c.get(about)
	switch {
	case !o.progressCounts || status.Replicas == status.UpdatedReplicas && has.Reason == reasonComplete:
	case isComplete(p.d, status):
		c.set(about, corev1.ConditionTrue, reasonComplete, subject+" has successfully progressed.")
	case progressed(p.d.Status, status):
		c.renew(about, corev1.ConditionTrue, reasonProgressing, subject+" is progressing.")
	case p.timedOut(has):
		c.set(about, corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.")
	}
}

// tellsOf reports whether the message of a condition is about a ReplicaSet. A revision alone would not tell that a rollout is another one:
// whoever applies a manifest with a revision in it changes that of the Deployment.
func mentions(c appsv1.DeploymentCondition, name string) bool {
	return strings.Contains(c.Message, strconv.Quote(name))
}

// Reasons of the condition Progressing that decide something.
const (
	reasonCreated      = "NewReplicaSetCreated"
	reasonFound        = "FoundNewReplicaSet"
	reasonProgressing  = "ReplicaSetUpdated"
	reasonComplete     = "NewReplicaSetAvailable"
	reasonTimedOut     = "ProgressDeadlineExceeded"
	reasonPaused       = "DeploymentPaused"
	reasonCreateFailed = "ReplicaSetCreateError" // also of an event
)

// complete reports whether the rollout of the generation that the status is about is over.
func isComplete(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	replicas := replicasOrOne(d.Spec.Replicas)
	return int(status.UpdatedReplicas) == replicas && int(status.Replicas) == replicas && int(status.AvailableReplicas) == replicas &&
		status.ObservedGeneration >= d.Generation
}

// progressed reports whether a status shows more updated, ready or available pods than the last status, or fewer old pods.
func progressed(was, status appsv1.DeploymentStatus) bool {
	return status.UpdatedReplicas > was.UpdatedReplicas || status.Replicas-status.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		status.ReadyReplicas > was.ReadyReplicas || status.AvailableReplicas > was.AvailableReplicas
}

// timedOut reports whether the deadline has passed without progress since a condition was updated.
func (p pass) timedOut(progressing appsv1.DeploymentCondition) bool {
	switch progressing.Reason {
	case "", reasonComplete:
		return false
	case reasonTimedOut:
		return true
	}
	return progressing.LastUpdateTime.Add(p.progressDeadline()).Before(p.now)
}

// untilTimeout is how long a rollout has until its deadline; 0: no deadline is running.
func (p pass) untilTimeout(status appsv1.DeploymentStatus, o passResult) time.Duration {
	c := conditions{list: status.Conditions}
	has, ok := c.get(appsv1.DeploymentProgressing)
	if !ok || !o.progressCounts || p.progressDeadline() == 0 || isComplete(p.d, status) || has.Reason == reasonComplete || has.Reason == reasonTimedOut {
		return 0
	}
	return max(has.LastUpdateTime.Add(p.progressDeadline()).Sub(p.now)+1, 1)
}

// deadline is how long a rollout may take without progress; 0: for ever.
func (p pass) progressDeadline() time.Duration {
	seconds := p.d.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds <= 0 || *seconds == math.MaxInt32 {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// replicaFailure repeats what the ReplicaSets say: the new one, or else the oldest that says something.
func (p pass) setReplicaFailure(c *conditions) {
	all := p.all
	if p.found {
		all = append([]replicaSet{p.next}, all...)
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

// nextName is the name of the ReplicaSet of the present template; empty if there is none.
func (p pass) nextName(o passResult) string {
	switch {
	case o.created != nil:
		return o.created.Name
	case p.found:
		return p.next.rs.Name
	}
	return ""
}

// revision is that of the ReplicaSet of the present template after the pass; empty if there is none.
func (p pass) newRevision(o passResult) string {
	switch {
	case o.created != nil:
		return o.created.Annotations[revisionAnnotation]
	case !p.found:
		return ""
	}
	for _, c := range o.changes {
		if due, ok := c.annotations[revisionAnnotation]; ok && c.rs == p.next.rs {
			return due
		}
	}
	return p.next.rs.Annotations[revisionAnnotation]
}

// count is a number as a status has it.
func count(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func orZero(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
