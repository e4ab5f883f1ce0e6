package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

const (
	maxNameBase  = 58 // apiserver v0.37, names.simpleNameGenerator: 63 less the suffix
	nameSuffix   = 5
	nameAttempts = 8 // apiserver v0.37, maxNameGenerationCreateAttempts

	// terminatingRecheck is the requeue delay after a response that the namespace is terminating. The
	// response may concern an earlier namespace with the same name.
	terminatingRecheck = time.Minute

	// foreignInterval is the time without creates after a webhook changed a new pod so that it no longer
	// belongs to the ReplicaSet, and no other pod was created: the events of that pod cause syncs without
	// back-off.
	foreignInterval = time.Minute
)

// allowedCreates returns the number of missing pods to create now, and the delay of the others or 0.
func (c *Controller) allowedCreates(ctx context.Context, t syncState, missing int, failed []*caches.Pod) (n int, delay time.Duration) {
	logger := klog.FromContext(ctx)
	if c.namespaces.Terminating(t.rs.Namespace) {
		logger.V(4).Info("Namespace is terminating, creating no pods") // the event of a new namespace requeues the key
		return 0, 0
	}
	if wait := t.backoffs.foreignAt.Add(foreignInterval).Sub(t.now); wait > 0 {
		return 0, wait
	}
	held, delay := t.backoffs.failedBackoff(failed, wantedReplicas(t.rs), t.now)
	if held == 0 {
		return missing, 0
	}
	logger.V(2).Info("Pods fail soon after creation, delaying creates", "failed", held, "delay", delay)
	if t.backoffs.reportedFailures != held {
		t.backoffs.reportedFailures = held
		c.recorder.Event(t.rs, corev1.EventTypeWarning, "BackOff", "Pods failed soon after their creation, delaying their successors")
	}
	return max(missing-held, 0), delay
}

// create creates n pods in batches that double in size until one fails: creates that all fail for one reason cost few
// requests.
func (c *Controller) create(ctx context.Context, t syncState, n int) applyResult {
	if len(t.rs.Spec.Template.Labels) == 0 {
		return applyResult{err: errNoLabels, reason: reasonFailedCreate}
	}
	klog.FromContext(ctx).V(2).Info("Too few replicas", "need", wantedReplicas(t.rs), "creating", n)
	template := podFor(t.rs)
	size := max(t.backoffs.batchSize, 1)
	t.backoffs.batchSize = 0
	var made, created []*caches.Pod
	var err error
	for n > 0 && err == nil {
		size = min(size, n)
		created, err = c.createBatch(ctx, t, template, size)
		made, t.pods = append(made, created...), append(t.pods, created...)
		if err == nil {
			n, size = n-size, 2*size
		}
	}
	if len(made) > 0 {
		t.backoffs.foreignAt = time.Time{} // each such sync makes progress, so the syncs end
	}
	switch {
	case errors.Is(err, writelimit.ErrCut):
		t.backoffs.batchSize = size
		return applyResult{created: made, deferred: len(made) == 0, requeueAfter: controller.Immediately}
	case errors.Is(err, errTerminating):
		return applyResult{deferred: true, created: made, requeueAfter: terminatingRecheck}
	}
	return applyResult{created: made, err: err, reason: reasonFailedCreate}
}

// createBatch creates n pods in parallel. Creates whose names are taken are repeated with other names.
func (c *Controller) createBatch(ctx context.Context, t syncState, template *corev1.Pod, n int) (created []*caches.Pod, err error) {
	prefix := template.GenerateName[:min(len(template.GenerateName), maxNameBase)]
	for range nameAttempts {
		// 1. Choose names, first those of creates with unknown outcome.
		names := t.expectations.creates.chooseNames(n,
			func() string { return prefix + utilrand.String(nameSuffix) },
			func(name string) bool {
				_, taken := c.pods.Get(cache.NewObjectName(t.rs.Namespace, name))
				return taken
			})
		// 2. Record each create before the request is sent.
		attempts := make([]attempt, n)
		for i, name := range names {
			attempts[i] = t.expectations.creates.start(name)
		}
		// 3. Send, and take back creates that were not sent.
		results := make([]createResult, n)
		begun, cut := c.slots.RunEach(ctx, t.key, t.deadline(), n, func(i int) { results[i] = c.createPod(ctx, t, template, attempts[i]) })
		for _, a := range attempts[begun:] {
			t.expectations.creates[a.name] = a
		}
		// 4. Record the results. Creates whose names were taken are repeated.
		n = 0
		for i, result := range results[:begun] {
			switch failure := c.recordCreate(ctx, t, attempts[i], result); {
			case result.outcome == outcome.Exists:
				n++
			case failure == nil:
				created = append(created, result.pod)
			default:
				err = cmp.Or(err, failure)
			}
		}
		if err = cmp.Or(err, cut); n == 0 || err != nil {
			return created, err
		}
	}
	return created, errTaken
}

// createResult is the result of one pod creation.
type createResult struct {
	outcome outcome.Outcome
	pod     *caches.Pod // if the outcome is Done
	err     error
	foreign error // a webhook changed the new pod, so that it does not belong to the ReplicaSet
}

// createPod creates one pod. If the name is taken, or a create is rejected whose earlier attempt has an unknown
// outcome, a live read looks for the pod.
func (c *Controller) createPod(ctx context.Context, t syncState, template *corev1.Pod, a attempt) createResult {
	if controller.Draining(ctx) {
		return createResult{outcome: outcome.NotSent, err: controller.ErrDraining}
	}
	pod := template.DeepCopy() // marshalling writes to its argument, and the template shares memory with the cache
	pod.Name = a.name
	var made *corev1.Pod
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		made, err = c.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	result := createResult{outcome: res, err: err}
	switch {
	case res == outcome.Done:
		result.pod = c.pods.Trim(made)
		if !belongsTo(t, result.pod) {
			result.foreign = c.deleteForeign(ctx, t, result.pod)
		}
	case res == outcome.Exists, res == outcome.Rejected && a.unknown:
		return c.findEarlierCreate(ctx, t, a, result)
	}
	return result
}

// belongsTo reports whether a new pod is or will be owned. A pod that lost its owner on creation is
// adopted, unless adoptions have no effect either.
func belongsTo(t syncState, pod *caches.Pod) bool {
	orphan := metav1.GetControllerOfNoCopy(pod) == nil
	return t.selects(pod) && (controls(t.rs, pod) || orphan && !t.backoffs.ownership.Disowned)
}

// deleteForeign deletes a new pod that a webhook changed so that it no longer belongs to the ReplicaSet. A
// pod with another controller is left to that controller. The errors lack the name of the pod, so equal errors are
// counted together.
func (c *Controller) deleteForeign(ctx context.Context, t syncState, pod *caches.Pod) error {
	if metav1.GetControllerOfNoCopy(pod) != nil && !controls(t.rs, pod) {
		return errors.New("the new pod was changed on its way and belongs to another controller")
	}
	r := c.sendDelete(ctx, pod, "") // without a version: a scheduler may change the pod at any time
	if r.outcome == outcome.Done {
		return errors.New("the new pod was changed on its way and does not belong to the ReplicaSet, so it was deleted")
	}
	return fmt.Errorf("the new pod was changed on its way, does not belong to the ReplicaSet and could not be deleted: %w", r.err)
}

// findEarlierCreate reads the pod of a name. A pod that is owned and not known yet was made by an earlier attempt
// of the same name.
func (c *Controller) findEarlierCreate(ctx context.Context, t syncState, a attempt, rejected createResult) createResult {
	found, readErr := c.pods.ReadByName(ctx, c.Client, cache.NewObjectName(t.rs.Namespace, a.name))
	switch {
	case readErr != nil:
		return createResult{outcome: outcome.Unknown, err: errors.Join(rejected.err, readErr)}
	case found == nil && rejected.outcome == outcome.Exists:
		return createResult{outcome: outcome.Unknown, err: rejected.err} // deleted meanwhile: the name is free again
	case found == nil:
		return rejected // the earlier attempt may still be carried out
	case t.isOwned(found) && !t.includes(found):
		return createResult{outcome: outcome.Done, pod: found}
	}
	return createResult{outcome: outcome.Exists, err: rejected.err}
}

// recordCreate records one result and its event. It returns the error of the batch; a taken name is no
// error.
func (c *Controller) recordCreate(ctx context.Context, t syncState, a attempt, r createResult) error {
	switch r.outcome {
	case outcome.Done:
		delete(t.expectations.creates, a.name)
		t.expectations.barrier.RequireVersion(c.pods, r.pod.ResourceVersion, t.now)
		if r.foreign != nil {
			t.backoffs.foreignAt = t.now
			c.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", r.foreign)
			return r.foreign
		}
		klog.FromContext(ctx).V(4).Info("Created pod", "pod", klog.KObj(r.pod))
		c.recorder.Eventf(t.rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", r.pod.Name)
		return nil
	case outcome.Exists:
		delete(t.expectations.creates, a.name)
		return nil
	case outcome.Terminating:
		t.expectations.creates[a.name] = a
		return errTerminating
	case outcome.Unknown:
		// The next attempt uses the name again, so that both attempts create one pod.
		a.unknown = true
	}
	t.expectations.creates[a.name] = a
	if !isCanceled(r.err) {
		c.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedCreate, "Error creating: %v", outcome.EventMessage(r.err))
	}
	return r.err
}

// podFor returns a pod of the template, without a name. It shares memory with rs.
func podFor(rs *appsv1.ReplicaSet) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       rs.Namespace,
			GenerateName:    (rs.Name + "-")[:min(len(rs.Name)+1, validation.DNS1123SubdomainMaxLength)], // as upstream
			Labels:          rs.Spec.Template.Labels,
			Annotations:     rs.Spec.Template.Annotations,
			Finalizers:      rs.Spec.Template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, ownerKind)},
		},
		Spec: rs.Spec.Template.Spec,
	}
}

var (
	// errTerminating ends a slow start in a terminating namespace.
	errTerminating = errors.New("namespace is terminating")
	errNoLabels    = errors.New("unable to create pods, no labels") // upstream's text
	errTaken       = errors.New("every pod name that was drawn is taken")
)

// isCanceled reports whether a request ended because the term or the process ends.
func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }
