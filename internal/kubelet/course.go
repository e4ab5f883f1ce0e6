package kubelet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Course is the sequence of states of a pod. A pod with the zero value keeps the current state until the pod is
// deleted.
type Course struct {
	Steps []Step
	// GoneAfter is the time between the deletion and the end of the pod. A pod with a negative value does not end.
	GoneAfter time.Duration
}

// Step is a state that a pod comes to.
type Step struct {
	State State
	After time.Duration // since the step before, or since the pod was first seen
	// Reason and Message are for the status of the pod. Empty values keep values of other writers, except
	// InvalidAnnotation.
	Reason, Message string
}

// InvalidAnnotation is the reason in the status of a pod with an unreadable annotation.
const InvalidAnnotation = "InvalidAnnotation"

// equal reports whether two courses are the same.
func (c Course) equal(other Course) bool {
	return c.GoneAfter == other.GoneAfter && slices.Equal(c.Steps, other.Steps)
}

type progress struct {
	course  Course
	steps   int // that were taken
	since   time.Time
	deleted time.Time
}

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

type act int

const (
	nothing act = iota
	post
	letGo
)

func (p progress) nextAct(pod *corev1.Pod, now time.Time) (act, time.Duration) {
	if pod.DeletionTimestamp != nil {
		return p.nextActAfterDeletion(pod, now)
	}
	state := StateOf(pod)
	if state.Over() || len(p.course.Steps) == 0 {
		return nothing, 0
	}
	var wait time.Duration
	if p.steps < len(p.course.Steps) {
		wait = p.since.Add(p.course.Steps[p.steps].After).Sub(now)
	}
	if step := p.currentStep(pod); state != step.State || step.Reason != pod.Status.Reason || step.Message != pod.Status.Message {
		return post, wait
	}
	return nothing, wait
}

func (p progress) currentStep(pod *corev1.Pod) Step {
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

// nextActAfterDeletion is nextAct for a deleted pod. A pod without time left waits for finalizers.
func (p progress) nextActAfterDeletion(pod *corev1.Pod, now time.Time) (act, time.Duration) {
	if p.course.GoneAfter < 0 || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nothing, 0
	}
	if wait := p.deleted.Add(p.course.GoneAfter).Sub(now); wait > 0 {
		return nothing, wait
	}
	return letGo, 0
}
