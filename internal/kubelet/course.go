package kubelet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Course is what becomes of a pod on its node. The zero value leaves it alone until it is deleted.
type Course struct {
	Steps []Step
	// GoneAfter is how long the pod needs to end once it is being deleted; negative: it does not end.
	GoneAfter time.Duration
}

// Step is a state that a pod comes to.
type Step struct {
	State State
	After time.Duration // since the step before, or since the pod was first seen
	// Reason and Message are in the status of the pod; empty: somebody else's stay there, InvalidAnnotation does not.
	Reason, Message string
}

// InvalidAnnotation is the reason in the status of a pod whose course is in an annotation that cannot be read.
const InvalidAnnotation = "InvalidAnnotation"

// equal reports whether two courses are the same.
func (c Course) equal(other Course) bool {
	return c.GoneAfter == other.GoneAfter && slices.Equal(c.Steps, other.Steps)
}

// progress is how far a pod is in its course.
type progress struct {
	course  Course
	steps   int       // that were taken
	since   time.Time // the last of them was due, or the course began
	deleted time.Time // the pod was first seen to be deleted; zero: it is not
}

// advance takes the steps that are due. A course that has changed begins anew.
func (p progress) advance(course Course, deleting bool, now time.Time) progress {
	if p.since.IsZero() || !p.course.equal(course) {
		p = progress{course: course, since: now, deleted: p.deleted}
	}
	for p.steps < len(course.Steps) && now.Sub(p.since) >= course.Steps[p.steps].After {
		p.since = p.since.Add(course.Steps[p.steps].After)
		p.steps++
	}
	if deleting && p.deleted.IsZero() {
		p.deleted = now
	}
	return p
}

// act is something that a kubelet does about a pod.
type act int

const (
	nothing act = iota
	post        // its step
	letGo
)

// next says what is to be done about a pod now, and when to look again; 0: not before something happens.
func (p progress) next(pod *corev1.Pod, now time.Time) (act, time.Duration) {
	if pod.DeletionTimestamp != nil {
		return p.end(pod, now)
	}
	state := StateOf(pod)
	if state.Over() || len(p.course.Steps) == 0 {
		return nothing, 0
	}
	var wait time.Duration
	if p.steps < len(p.course.Steps) {
		wait = p.since.Add(p.course.Steps[p.steps].After).Sub(now)
	}
	if step := p.step(pod); state != step.State || step.Reason != pod.Status.Reason || step.Message != pod.Status.Message {
		return post, wait
	}
	return nothing, wait
}

// step is the last step that was taken, as far as the readiness gates of the pod let it come. Before the first a pod stays where it is.
func (p progress) step(pod *corev1.Pod) Step {
	step := Step{State: StateOf(pod)}
	if p.steps > 0 {
		step = p.course.Steps[p.steps-1]
		if step.State == Ready && !passesGates(pod) {
			step.State = ContainersReady
		}
	}
	if step.Reason == "" && pod.Status.Reason != InvalidAnnotation {
		step.Reason, step.Message = pod.Status.Reason, pod.Status.Message
	}
	return step
}

// end is next for a pod that is being deleted. Without time left its kubelet has nothing to do with it any more: it waits for finalizers.
func (p progress) end(pod *corev1.Pod, now time.Time) (act, time.Duration) {
	if p.course.GoneAfter < 0 || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nothing, 0
	}
	if wait := p.deleted.Add(p.course.GoneAfter).Sub(now); wait > 0 {
		return nothing, wait
	}
	return letGo, 0
}
