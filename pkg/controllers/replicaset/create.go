package replicaset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/answer"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

const (
	maxNameBase  = 58 // apiserver v0.37 names.simpleNameGenerator: 63 characters less the suffix
	nameSuffix   = 5
	nameAttempts = 8 // apiserver v0.37: how often it draws a name
)

var (
	errNoLabels = errors.New("unable to create pods, no labels") // upstream's words
	errTaken    = errors.New("every pod name that was drawn is taken")
)

// allowed is how many of the missing pods may be created now. It asks for a sync when more may be.
func (p *pass) allowed(ctx context.Context, missing int, failed []*caches.Pod) int {
	logger := klog.FromContext(ctx)
	if p.namespaceTerminating() {
		logger.V(4).Info("Namespace is terminating, creating no pods") // its successor wakes us
		return 0
	}
	p.ledger.observeSpec(p.rs.Generation, p.rs.Status.ObservedGeneration, p.now)
	if delay := p.ledger.creates.wait(p.rs.Generation, p.now); delay > 0 {
		p.again(delay)
		return 0
	}
	held, delay := failedHold(failed, p.ledger.replaced, p.want(), p.ledger.specSince, p.now)
	if held == 0 {
		p.ledger.succeeded(failed)
		return missing
	}
	logger.V(2).Info("Pods keep failing, their successors are created later", "failed", len(failed), "held", held, "delay", delay)
	if p.ledger.failedTold != len(failed) {
		p.ledger.failedTold = len(failed)
		p.deps.Recorder.Event(p.rs, corev1.EventTypeWarning, "BackOff", "Pods fail soon after they are created, their successors are created later")
	}
	p.again(delay)
	return max(missing-held, 0)
}

func (p *pass) namespaceTerminating() bool {
	if p.deps.Namespaces == nil {
		return false
	}
	ns, ok := p.deps.Namespaces.Get(cache.NewObjectName("", p.rs.Namespace))
	return ok && ns.DeletionTimestamp != nil
}

// create makes n pods, in batches that grow while they succeed.
func (p *pass) create(ctx context.Context, n int) attempt {
	a := attempt{tooFew: true}
	if len(p.rs.Spec.Template.Labels) == 0 {
		a.err = errNoLabels
		return a
	}
	klog.FromContext(ctx).V(2).Info("Too few replicas", "need", p.want(), "creating", n)
	template := podFor(p.rs)
	b := batchResult{}
	pace := max(p.ledger.pace, 1)
	p.ledger.pace = 0
	a.err = slowStart(pace, n, func(size int) error {
		pace = size
		p.createBatch(ctx, template, size, &b)
		return b.err
	})
	switch {
	case errors.Is(a.err, errCut):
		p.ledger.pace = pace
		p.again(atOnce)
		a.err, a.held = nil, b.created == 0
	case errors.Is(a.err, errTerminating):
		// The answer may be old: an API server hears later than others that a namespace has gone and another has its name.
		p.backOff(b.created > 0)
		return attempt{held: true}
	case b.refused:
		p.backOff(b.created > 0)
	case a.err == nil:
		p.ledger.creates = createBackoff{}
	}
	return a
}

// backOff holds back creates after a refusal, from now on: the sync may have taken long.
func (p *pass) backOff(progress bool) {
	now := p.deps.Clock.Now()
	p.ledger.creates = p.ledger.creates.refused(p.rs.Generation, progress, now)
	p.again(p.ledger.creates.wait(p.rs.Generation, now))
}

// errTerminating ends a slow start. It is not a failure: nothing can be created in the namespace any more, and nothing need be.
var errTerminating = errors.New("namespace is terminating")

// batchResult sums up the batches of a sync.
type batchResult struct {
	created int
	refused bool // by a definite answer
	err     error
}

// createBatch makes n pods at once, and some again under other names if theirs were taken.
func (p *pass) createBatch(ctx context.Context, template *corev1.Pod, n int, sum *batchResult) {
	prefix := template.GenerateName[:min(len(template.GenerateName), maxNameBase)]
	for range nameAttempts {
		names := p.ledger.names(n,
			func() string { return prefix + utilrand.String(nameSuffix) },
			func(name string) bool {
				_, taken := p.deps.Pods.Get(cache.NewObjectName(p.rs.Namespace, name))
				return taken
			})
		results := make([]created, n)
		begun, err := p.parallel(ctx, n, func(i int) { results[i] = p.createPod(ctx, template, names[i]) })
		for _, try := range names[begun:] {
			p.ledger.keep(try)
		}
		n = 0
		for i, r := range results[:begun] {
			if p.noteCreate(ctx, names[i], r, sum) {
				n++
			}
		}
		if err != nil && (sum.err == nil || stopping(err)) {
			sum.err = err
		}
		if n == 0 || sum.err != nil {
			return
		}
	}
	sum.refused, sum.err = true, errTaken
}

// created is what became of one create.
type created struct {
	outcome outcome
	pod     *caches.Pod // if done
	err     error       // if not done
	late    bool        // done, by an attempt before this one
	foreign *removed    // done, but something changed the pod on its way so that it is not ours; what became of deleting it, if that was tried
}

// createPod makes one pod. A refusal of a name that was tried before is not believed until a look shows that no such pod of ours exists.
func (p *pass) createPod(ctx context.Context, template *corev1.Pod, try intent) created {
	if controller.Draining(ctx) {
		return created{outcome: unsent, err: controller.ErrDraining}
	}
	pod := template.DeepCopy() // marshalling writes to what it is given, and the template shares memory with the cache
	pod.Name = try.name
	var made *corev1.Pod
	switch outcome, err := send(ctx, func(ctx context.Context) (err error) {
		made, err = p.deps.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}); {
	case outcome == answer.Done:
		c := created{outcome: answer.Done, pod: p.deps.Pods.Trim(made)}
		if !p.belongs(c.pod) {
			c.foreign = p.disown(ctx, c.pod)
		}
		return c
	case outcome == answer.Exists, outcome == answer.Refused && try.unknown:
		return p.explain(ctx, try, created{outcome: outcome, err: err})
	default:
		return created{outcome: outcome, err: err}
	}
}

// belongs reports whether a new pod is ours, or will be: one that lost its owner on its way is adopted like any other, unless adoptions
// meet the same fate.
func (p *pass) belongs(pod *caches.Pod) bool {
	orphan := metav1.GetControllerOfNoCopy(pod) == nil
	return p.selected(pod) && (controls(p.rs, pod) || orphan && !p.ledger.undone)
}

// disown deletes a pod that we made and that does not belong to us, for nobody else would. One that was given to another controller is not
// ours to delete.
func (p *pass) disown(ctx context.Context, pod *caches.Pod) *removed {
	if metav1.GetControllerOfNoCopy(pod) != nil && !controls(p.rs, pod) {
		return &removed{outcome: unsent}
	}
	r := p.sendDelete(ctx, pod, pod.ResourceVersion)
	return &r
}

// foreign is the error of a pod that something changed on its way. It names no pod, so that all are alike.
func foreign(pod removed) error {
	switch {
	case pod.outcome == answer.Done:
		return errors.New("the new pod was changed on its way and does not belong to the ReplicaSet, so it was deleted")
	case pod.err == nil:
		return errors.New("the new pod was changed on its way and belongs to another controller")
	}
	return fmt.Errorf("the new pod was changed on its way, does not belong to the ReplicaSet and could not be deleted: %w", pod.err)
}

// explain looks for the pod of a refused create. If it is there, ours and not counted yet, an earlier attempt made it.
func (p *pass) explain(ctx context.Context, try intent, refused created) created {
	found, lookErr := p.podNamed(ctx, try.name)
	switch {
	case lookErr != nil:
		return created{outcome: answer.Unknown, err: errors.Join(refused.err, lookErr)}
	case found == nil && refused.outcome == answer.Exists:
		return created{outcome: answer.Unknown, err: refused.err} // it was there a moment ago, and the name is free again
	case found == nil:
		return refused // the earlier attempt may still be on its way
	case p.ours(found) && !p.counted(found):
		return created{outcome: answer.Done, pod: found, late: true}
	default:
		return created{outcome: answer.Exists, err: refused.err}
	}
}

func (p *pass) counted(pod *caches.Pod) bool {
	for _, other := range p.pods {
		if other.UID == pod.UID {
			return true
		}
	}
	return false
}

// podNamed reads one pod live; nil if there is none. It is a list, because ReplicaSet controllers are not allowed to get pods.
func (p *pass) podNamed(ctx context.Context, name string) (*caches.Pod, error) {
	pods, _, err := p.deps.Pods.Read(ctx, p.deps.Client, p.rs.Namespace,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}

// noteCreate enters one result into the ledger and tells users of it. It reports whether another name has to be tried.
func (p *pass) noteCreate(ctx context.Context, try intent, r created, sum *batchResult) (again bool) {
	switch r.outcome {
	case answer.Done:
		p.ledger.forget(try.name)
		p.ledger.wrotePod(r.pod.ResourceVersion)
		p.deps.Pods.Expect(r.pod.ResourceVersion)
		if r.foreign != nil {
			err := foreign(*r.foreign)
			p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", err)
			sum.fail(err, true)
			return false
		}
		sum.created++
		switch {
		case r.late:
			p.metrics.lostAnswers.WithLabelValues("create", fateConfirmed).Inc()
		case try.unknown:
			p.metrics.lostAnswers.WithLabelValues("create", fateAbsent).Inc()
		}
		klog.FromContext(ctx).V(4).Info("Created pod", "pod", klog.KObj(r.pod))
		p.deps.Recorder.Eventf(p.rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", r.pod.Name)
	case answer.Exists:
		p.ledger.forget(try.name)
		return true
	case answer.Terminating:
		p.ledger.keep(try)
		sum.err = errTerminating
	default:
		// The name stays: the next attempt uses it again, so that both together make one pod.
		if r.outcome == answer.Unknown {
			try.unknown, try.until = true, p.deps.Clock.Now().Add(landsWithin)
		}
		p.ledger.keep(try)
		if !stopping(r.err) {
			p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", forUsers(r.err))
		}
		sum.fail(r.err, r.outcome == answer.Refused)
	}
	return false
}

// fail keeps the first error, and whether any was a definite refusal.
func (s *batchResult) fail(err error, refused bool) {
	if s.err == nil || stopping(err) {
		s.err = err
	}
	s.refused = s.refused || refused
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
