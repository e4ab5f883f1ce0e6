package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

// remover deletes pods.
type remover struct {
	client     kubernetes.Interface
	pods       *caches.Pods
	sets       *caches.ReplicaSets
	read       *reader
	slots      *writelimit.Slots
	recorder   record.EventRecorder
	clock      clock.Clock
	metrics    *metrics
	honourCost bool // the deletion cost annotation counts
}

// remove deletes: again some of the pods whose delete was not answered, and the surplus.
func (r *remover) remove(ctx context.Context, t task, todo plan) applied {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Too many replicas", "need", t.want(), "deleting", todo.surplus, "deletingAgain", todo.repeat)
	victims := r.choose(t, todo.unanswered, todo.repeat)
	if todo.surplus > 0 {
		chosen := r.choose(t, todo.candidates, todo.surplus)
		if todo.surplus < len(todo.candidates) {
			for _, ratio := range ageRatios(todo.candidates, chosen, t.now) {
				r.metrics.deletionAgeRatio.Observe(ratio)
			}
		}
		victims = append(victims, chosen...)
	}
	for _, pod := range victims {
		logger.V(2).Info("Deleting pod", "pod", klog.KObj(pod))
	}
	results := make([]removed, len(victims))
	begun, err := r.slots.Each(ctx, t.key, t.deadline(), len(victims), func(i int) {
		results[i] = r.removePod(ctx, t, victims[i], judgedVersion(t, victims[i]))
	})
	var a applied
	if errors.Is(err, errCut) {
		a.again, err = controller.Immediately, nil
	}
	a.err = err
	for i, result := range results[:begun] {
		again, err := r.note(t, victims[i], result)
		a.again, a.err = controller.MinPositive(a.again, again), decisive(a.err, err)
		if result.outcome == outcome.Done || result.outcome == outcome.NotFound {
			a.deleted = append(a.deleted, victims[i])
		}
	}
	return a
}

// choose picks n of the pods to delete.
func (r *remover) choose(t task, pods []*caches.Pod, n int) []*caches.Pod {
	return chooseVictims(pods, r.related(t, pods, n), n, r.honourCost, t.now)
}

// related are the pods that do the same work as those to rank: the active pods of all ReplicaSets with our controller. Without one they
// are our own.
func (r *remover) related(t task, own []*caches.Pod, surplus int) []*caches.Pod {
	owner := metav1.GetControllerOfNoCopy(t.rs)
	if owner == nil || surplus >= len(own) {
		return own
	}
	related := own[:len(own):len(own)]
	for _, sibling := range r.sets.ControlledBy(owner.UID) {
		if sibling.UID != t.rs.UID && sibling.Namespace == t.rs.Namespace {
			related = append(related, r.pods.ControlledBy(sibling.UID)...)
		}
	}
	return related
}

// judgedVersion is the version of the pod that was found superfluous: for a delete that is sent again, the one it was sent with.
func judgedVersion(t task, pod *caches.Pod) string {
	if d, ok := t.ledger.unanswered[pod.UID]; ok {
		return d.version
	}
	return pod.ResourceVersion
}

// removed is what became of one delete.
type removed struct {
	outcome outcome.Outcome // done, missing (gone already), conflict (to be judged again), unsent, unknown or rejected
	version string          // of the last delete that was sent
	changed *caches.Pod     // after a conflict: the pod as it is now; nil: it was not looked at, or is gone
	err     error
}

// ending reports whether a pod that is deleted is still there: one that somebody else deleted, if it was seen so, and one that we did, if it lingers.
func (r removed) ending(pod *caches.Pod) bool {
	pod = cmp.Or(r.changed, pod)
	return pod.DeletionTimestamp != nil || r.outcome == outcome.Done && lingers(pod)
}

// removePod deletes the pod if it still is the version that was judged, or has changed in ways that do not matter since.
func (r *remover) removePod(ctx context.Context, t task, pod *caches.Pod, version string) removed {
	if controller.Draining(ctx) {
		return removed{outcome: outcome.NotSent, version: version, err: controller.ErrDraining}
	}
	first := r.sendDelete(ctx, pod, version)
	if first.outcome != outcome.Conflict {
		return first
	}
	live, err := r.read.pod(ctx, pod.Namespace, pod.Name)
	switch {
	case err != nil:
		return removed{outcome: outcome.NotSent, version: version, err: errors.Join(first.err, err)}
	case live == nil || live.UID != pod.UID:
		return removed{outcome: outcome.NotFound, version: version}
	case live.DeletionTimestamp != nil:
		return removed{outcome: outcome.NotFound, version: version, changed: live}
	case live.ResourceVersion == version:
		// The precondition held, so the conflict is the answer of a webhook or a policy, and may last.
		return removed{outcome: outcome.Rejected, version: version, err: first.err}
	case !t.counts(live) || !sameStanding(pod, live):
		return removed{outcome: outcome.Conflict, version: version, changed: live, err: first.err}
	}
	second := r.sendDelete(ctx, live, live.ResourceVersion)
	second.changed = live
	return second
}

// sendDelete deletes a version of a pod, or any version if version is empty. A pod that does not linger is marked and removed in two steps, and admission is asked before each
// (apiserver v0.37, Store.Delete): a refusal may come after the first.
func (r *remover) sendDelete(ctx context.Context, pod *caches.Pod, version string) removed {
	preconditions := metav1.Preconditions{UID: &pod.UID}
	if version != "" {
		preconditions.ResourceVersion = &version
	}
	res, err := outcome.Do(ctx, func(ctx context.Context) error {
		return r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &preconditions})
	})
	if res == outcome.Rejected && !lingers(pod) {
		res = outcome.Unknown
	}
	return removed{outcome: res, version: version, err: err}
}

// sameStanding reports whether a pod would be ranked as before, as far as its node, readiness and deletion cost go.
func sameStanding(before, now *caches.Pod) bool {
	return before.NodeName == now.NodeName && isReady(before) == isReady(now) &&
		before.Annotations[corev1.PodDeletionCost] == now.Annotations[corev1.PodDeletionCost]
}

// note enters one result into the ledger and tells users of it. It returns the error that the sync fails with, or when to look again.
func (r *remover) note(t task, pod *caches.Pod, result removed) (again time.Duration, err error) {
	switch result.outcome {
	case outcome.Done, outcome.NotFound:
		delete(t.ledger.unanswered, pod.UID)
		t.ledger.deleted[pod.UID] = result.ending(pod)
		if result.outcome == outcome.Done {
			r.recorder.Eventf(t.rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
		}
		return 0, nil
	case outcome.Conflict:
		// No delete that was sent can succeed any more, for the version is past. Wait until the cache shows why, and judge again.
		delete(t.ledger.unanswered, pod.UID)
		if result.changed != nil {
			t.ledger.barrier.WroteAt(r.pods, result.changed.ResourceVersion, t.now)
		}
		return controller.ConsistencyRecheck, nil
	case outcome.Unknown:
		r.metrics.unknownOutcomes.WithLabelValues("delete").Inc()
		t.ledger.unanswered[pod.UID] = unansweredDelete{version: result.version, until: r.clock.Now().Add(outcome.MaxCompletionDelay)}
	}
	if stopping(result.err) {
		return 0, result.err
	}
	r.recorder.Eventf(t.rs, corev1.EventTypeWarning, reasonFailedDelete, "Error deleting: %v", outcome.EventMessage(result.err))
	return 0, fmt.Errorf("unable to delete pods: %w", result.err)
}
