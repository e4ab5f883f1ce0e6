package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

const (
	maxNameBase  = 58 // apiserver v0.37 names.simpleNameGenerator: 63 characters less the suffix
	nameSuffix   = 5
	nameAttempts = 8 // apiserver v0.37: how often it draws a name

	// terminatingRecheck repeats creates after an answer that the namespace is terminating. The answer may be about an earlier namespace of this name.
	terminatingRecheck = time.Minute
)

// creator creates pods.
type creator struct {
	client     kubernetes.Interface
	pods       *caches.Pods
	namespaces *caches.Namespaces // nil: nobody knows which are terminating
	read       *reader
	remover    *remover // of pods that were changed on their way
	slots      *writelimit.Slots
	recorder   record.EventRecorder
	clock      clock.Clock
	metrics    *metrics
}

// allowed is how many of the missing pods may be created now, and when to look for more; 0: no need.
func (c *creator) allowed(ctx context.Context, t task, missing int, failed []*caches.Pod) (n int, again time.Duration) {
	logger := klog.FromContext(ctx)
	if c.namespaces.Terminating(t.rs.Namespace) {
		logger.V(4).Info("Namespace is terminating, creating no pods") // its successor wakes us
		return 0, 0
	}
	held, delay := failedBackoff(failed, t.want(), t.now)
	if held == 0 {
		return missing, 0
	}
	logger.V(2).Info("Pods fail soon after creation, delaying creates", "failed", held, "delay", delay)
	if t.throttle.reportedFailures != held {
		t.throttle.reportedFailures = held
		c.recorder.Event(t.rs, corev1.EventTypeWarning, "BackOff", "Pods fail soon after they are created, their successors are created later")
	}
	return max(missing-held, 0), delay
}

// create makes n pods, in batches that grow while they succeed.
func (c *creator) create(ctx context.Context, t task, n int) applied {
	if len(t.rs.Spec.Template.Labels) == 0 {
		return applied{tooFew: true, err: errNoLabels}
	}
	klog.FromContext(ctx).V(2).Info("Too few replicas", "need", t.want(), "creating", n)
	template := podFor(t.rs)
	first := max(t.throttle.pace, 1)
	t.throttle.pace = 0
	var last batch
	var made []*caches.Pod
	err := slowStart(first, n, func(size int) error {
		last = c.createBatch(ctx, t, template, size)
		made = append(made, last.created...)
		return last.err
	})
	switch {
	case errors.Is(err, errCut):
		t.throttle.pace = last.size
		return applied{tooFew: true, created: made, held: len(made) == 0, again: controller.Immediately}
	case errors.Is(err, errTerminating):
		return applied{held: true, created: made, again: terminatingRecheck}
	}
	return applied{tooFew: true, created: made, err: err}
}

// batch is what became of some creates that were sent at once.
type batch struct {
	size    int
	created []*caches.Pod
	err     error
}

// createBatch makes n pods at once, and some again under other names if theirs were taken.
func (c *creator) createBatch(ctx context.Context, t task, template *corev1.Pod, n int) batch {
	b := batch{size: n}
	prefix := template.GenerateName[:min(len(template.GenerateName), maxNameBase)]
	for range nameAttempts {
		// 1. Names: first those whose creates were not answered.
		names := t.ledger.creates.Choose(n,
			func() string { return prefix + utilrand.String(nameSuffix) },
			func(name string) bool {
				_, taken := c.pods.Get(cache.NewObjectName(t.rs.Namespace, name))
				return taken
			})
		// 2. The ledger knows of each create before it is sent.
		attempts := make([]controller.Create, n)
		for i, name := range names {
			attempts[i] = t.ledger.creates.Start(name)
		}
		// 3. Send, and take back what was not sent.
		results := make([]created, n)
		begun, cut := c.slots.Each(ctx, t.key, t.deadline(), n, func(i int) { results[i] = c.createPod(ctx, t, template, attempts[i]) })
		for _, attempt := range attempts[begun:] {
			t.ledger.creates.Retry(attempt)
		}
		// 4. Note what became of each. Those whose names were taken go once more, under others.
		n = 0
		for i, result := range results[:begun] {
			switch err := c.note(ctx, t, attempts[i], result); {
			case result.outcome == outcome.Exists:
				n++
			case err == nil:
				b.created = append(b.created, result.pod)
			default:
				b.err = decisive(b.err, err)
			}
		}
		if cut != nil {
			b.err = decisive(b.err, cut)
		}
		if n == 0 || b.err != nil {
			return b
		}
	}
	b.err = errTaken
	return b
}

// created is what became of one create.
type created struct {
	outcome outcome.Outcome
	pod     *caches.Pod // if done
	err     error       // if not done
	foreign *removed    // done, but something changed the pod on its way so that it is not ours; what became of deleting it, if that was tried
}

// createPod makes one pod. A refusal of a name that was tried before is not believed until a look shows that no such pod of ours exists.
func (c *creator) createPod(ctx context.Context, t task, template *corev1.Pod, attempt controller.Create) created {
	if controller.Draining(ctx) {
		return created{outcome: outcome.NotSent, err: controller.ErrDraining}
	}
	pod := template.DeepCopy() // marshalling writes to what it is given, and the template shares memory with the cache
	pod.Name = attempt.Name
	var made *corev1.Pod
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		made, err = c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	result := created{outcome: res, err: err}
	switch {
	case res == outcome.Done:
		result.pod = c.pods.Trim(made)
		if !belongs(t, result.pod) {
			result.foreign = c.deleteForeign(ctx, t, result.pod)
		}
	case res == outcome.Exists, res == outcome.Rejected && attempt.Unknown:
		return c.explain(ctx, t, attempt, result)
	}
	return result
}

// belongs reports whether a new pod is ours, or will be: one that lost its owner on its way is adopted like any other, unless adoptions
// meet the same fate.
func belongs(t task, pod *caches.Pod) bool {
	orphan := metav1.GetControllerOfNoCopy(pod) == nil
	return t.selects(pod) && (controls(t.rs, pod) || orphan && !t.throttle.ownership.Disowned)
}

// deleteForeign deletes a pod that we made and that does not belong to us, for nobody else would. One that was given to another controller is
// not ours to delete.
func (c *creator) deleteForeign(ctx context.Context, t task, pod *caches.Pod) *removed {
	if metav1.GetControllerOfNoCopy(pod) != nil && !controls(t.rs, pod) {
		return &removed{outcome: outcome.NotSent}
	}
	r := c.remover.sendDelete(ctx, pod, "") // a scheduler may change the pod at any time
	return &r
}

// foreign is the error of a pod that something changed on its way. It names no pod, so that all are alike.
func foreign(pod removed) error {
	switch {
	case pod.outcome == outcome.Done:
		return errors.New("the new pod was changed on its way and does not belong to the ReplicaSet, so it was deleted")
	case pod.err == nil:
		return errors.New("the new pod was changed on its way and belongs to another controller")
	}
	return fmt.Errorf("the new pod was changed on its way, does not belong to the ReplicaSet and could not be deleted: %w", pod.err)
}

// explain looks for the pod of a refused create. If it is there, ours and not known yet, an earlier attempt made it.
func (c *creator) explain(ctx context.Context, t task, attempt controller.Create, refused created) created {
	found, readErr := c.read.pod(ctx, t.rs.Namespace, attempt.Name)
	switch {
	case readErr != nil:
		return created{outcome: outcome.Unknown, err: errors.Join(refused.err, readErr)}
	case found == nil && refused.outcome == outcome.Exists:
		return created{outcome: outcome.Unknown, err: refused.err} // it was there a moment ago, and the name is free again
	case found == nil:
		return refused // the earlier attempt may still be on its way
	case t.counts(found) && !t.knows(found):
		return created{outcome: outcome.Done, pod: found}
	}
	return created{outcome: outcome.Exists, err: refused.err}
}

// note enters one result into the ledger and tells users of it. It returns the error that the batch fails with; a name that is taken is none.
func (c *creator) note(ctx context.Context, t task, attempt controller.Create, r created) error {
	switch r.outcome {
	case outcome.Done:
		t.ledger.creates.Done(attempt.Name)
		t.ledger.barrier.WroteAt(c.pods, r.pod.ResourceVersion, t.now)
		if r.foreign != nil {
			err := foreign(*r.foreign)
			c.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", err)
			return err
		}
		klog.FromContext(ctx).V(4).Info("Created pod", "pod", klog.KObj(r.pod))
		c.recorder.Eventf(t.rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", r.pod.Name)
		return nil
	case outcome.Exists:
		t.ledger.creates.Done(attempt.Name)
		return nil
	case outcome.Terminating:
		t.ledger.creates.Retry(attempt)
		return errTerminating
	case outcome.Unknown:
		// The next attempt uses the name again, so that both together make one pod.
		c.metrics.unknownOutcomes.WithLabelValues("create").Inc()
		attempt.Unknown, attempt.Until = true, c.clock.Now().Add(outcome.MaxCompletionDelay)
	}
	t.ledger.creates.Retry(attempt)
	if !stopping(r.err) {
		c.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", outcome.EventMessage(r.err))
	}
	return r.err
}

// podFor is what all pods made from the template have in common; it lacks a name. It shares memory with rs.
func podFor(rs *appsv1.ReplicaSet) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       rs.Namespace,
			GenerateName:    rs.Name + "-",
			Labels:          rs.Spec.Template.Labels,
			Annotations:     rs.Spec.Template.Annotations,
			Finalizers:      rs.Spec.Template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*controllerRef(rs)},
		},
		Spec: rs.Spec.Template.Spec,
	}
}
