package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

// deletePods deletes the surplus, and repeats deletes with unknown outcome.
func (c *Controller) deletePods(ctx context.Context, t syncState, todo plan) applyResult {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Too many replicas", "need", wantedReplicas(t.rs), "deleting", todo.surplus, "deletingAgain", todo.repeat)
	victims := c.victimsOf(t, todo.unconfirmed, todo.repeat)
	if todo.surplus > 0 {
		chosen := c.victimsOf(t, todo.candidates, todo.surplus)
		if todo.surplus < len(todo.candidates) {
			for _, ratio := range ageRatios(todo.candidates, chosen, t.now) {
				c.metrics.deletionAgeRatio.Observe(ratio)
			}
		}
		victims = append(victims, chosen...)
	}
	for _, pod := range victims {
		logger.V(2).Info("Deleting pod", "pod", klog.KObj(pod))
	}
	results := make([]deleteResult, len(victims))
	begun, err := c.slots.RunEach(ctx, t.key, t.deadline(), len(victims), func(i int) {
		results[i] = c.deletePod(ctx, t, victims[i])
	})
	var a applyResult
	if errors.Is(err, writelimit.ErrCut) {
		a.requeueAfter, err = controller.Immediately, nil
	}
	a.err, a.reason, a.deferred = err, reasonFailedDelete, begun == 0
	for i, result := range results[:begun] {
		requeueAfter, err := c.recordDelete(t, victims[i], result)
		a.requeueAfter, a.err = timing.MinPositive(a.requeueAfter, requeueAfter), cmp.Or(a.err, err)
		if result.outcome == outcome.Done || result.outcome == outcome.NotFound {
			a.deleted = append(a.deleted, victims[i])
		}
	}
	return a
}

func (c *Controller) victimsOf(t syncState, pods []*caches.Pod, n int) []*caches.Pod {
	return chooseVictims(pods, c.relatedPods(t, pods, n), n, c.cfg.PodDeletionCost, t.now)
}

// relatedPods returns the pods that do the same work: own, and the pods of the other ReplicaSets with the same
// controller, for example a Deployment.
func (c *Controller) relatedPods(t syncState, own []*caches.Pod, surplus int) []*caches.Pod {
	owner := metav1.GetControllerOfNoCopy(t.rs)
	if owner == nil || surplus >= len(own) {
		return own
	}
	related := own[:len(own):len(own)]
	for _, sibling := range c.replicaSets.ControlledBy(owner.UID) {
		if sibling.UID != t.rs.UID && sibling.Namespace == t.rs.Namespace {
			related = append(related, c.pods.ControlledBy(sibling.UID)...)
		}
	}
	return related
}

// deleteResult is the result of one delete.
type deleteResult struct {
	outcome outcome.Outcome // not Exists and not Terminating
	version string          // of the last request
	current *caches.Pod     // after a conflict, the pod of a live read; nil if deleted or not read
	err     error
}

// stillExists reports whether a deleted pod lingers.
func (r deleteResult) stillExists(pod *caches.Pod) bool {
	pod = cmp.Or(r.current, pod)
	return pod.DeletionTimestamp != nil || r.outcome == outcome.Done && lingers(pod)
}

// deletePod deletes the pod if it is unchanged since the decision, or changed only in fields that do not
// matter. A repeated delete uses the version of the first one.
func (c *Controller) deletePod(ctx context.Context, t syncState, pod *caches.Pod) deleteResult {
	version := cmp.Or(t.expectations.unconfirmed[pod.UID].version, pod.ResourceVersion)
	if controller.Draining(ctx) {
		return deleteResult{outcome: outcome.NotSent, version: version, err: controller.ErrDraining}
	}
	first := c.sendDelete(ctx, pod, version)
	if first.outcome != outcome.Conflict {
		return first
	}
	live, err := c.pods.ReadByName(ctx, c.Client, cache.MetaObjectToName(pod))
	switch {
	case err != nil:
		return deleteResult{outcome: outcome.NotSent, version: version, err: errors.Join(first.err, err)}
	case live == nil || live.UID != pod.UID:
		return deleteResult{outcome: outcome.NotFound, version: version}
	case live.DeletionTimestamp != nil:
		return deleteResult{outcome: outcome.NotFound, version: version, current: live}
	case live.ResourceVersion == version:
		// The precondition held, so a webhook or a policy returned the conflict, and may return it again.
		return deleteResult{outcome: outcome.Rejected, version: version, err: first.err}
	case !t.isOwned(live) || !sameRank(pod, live):
		return deleteResult{outcome: outcome.Conflict, version: version, current: live, err: first.err}
	}
	second := c.sendDelete(ctx, live, live.ResourceVersion)
	second.current = live
	return second
}

// sendDelete deletes a pod at a version, or at any version if the version is empty. The API server marks
// and removes a pod that does not linger in two steps with admission before each (apiserver v0.37,
// Store.Delete): a rejection may follow the first step.
func (c *Controller) sendDelete(ctx context.Context, pod *caches.Pod, version string) deleteResult {
	preconditions := metav1.Preconditions{UID: &pod.UID}
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	res, err := outcome.Do(ctx, func(ctx context.Context) error {
		return c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &preconditions})
	})
	if res == outcome.Rejected && !lingers(pod) {
		res = outcome.Unknown
	}
	return deleteResult{outcome: res, version: version, err: err}
}

// sameRank reports whether node, readiness and deletion cost of a pod are unchanged.
func sameRank(before, now *caches.Pod) bool {
	return before.NodeName == now.NodeName && before.IsReady() == now.IsReady() &&
		before.Annotations[corev1.PodDeletionCost] == now.Annotations[corev1.PodDeletionCost]
}

// recordDelete records one result and its event. It returns the requeue delay, or the error of the sync.
func (c *Controller) recordDelete(t syncState, pod *caches.Pod, result deleteResult) (requeueAfter time.Duration, err error) {
	switch result.outcome {
	case outcome.Done, outcome.NotFound:
		delete(t.expectations.unconfirmed, pod.UID)
		t.expectations.deleted[pod.UID] = result.stillExists(pod)
		if result.outcome == outcome.Done {
			c.recorder.Eventf(t.rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
		}
		return 0, nil
	case outcome.Conflict:
		// No delete of the old version can succeed now. Decide again when the cache shows the change.
		delete(t.expectations.unconfirmed, pod.UID)
		if result.current != nil {
			t.expectations.barrier.RequireVersion(c.pods, result.current.ResourceVersion, t.now)
		}
		return controller.ConsistencyRecheck, nil
	case outcome.Unknown:
		t.expectations.unconfirmed[pod.UID] = unconfirmedDelete{version: result.version, until: c.Clock.Now().Add(outcome.MaxCompletionDelay)}
	}
	if isCanceled(result.err) {
		return 0, result.err
	}
	c.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedDelete, "Error deleting: %v", outcome.EventMessage(result.err))
	return 0, fmt.Errorf("unable to delete pods: %w", result.err)
}
