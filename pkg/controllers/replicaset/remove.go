package replicaset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/worker"
)

// remove deletes: again the pods whose delete was not answered, and the surplus.
func (p *pass) remove(ctx context.Context, todo plan) error {
	logger := klog.FromContext(ctx)
	var victims []victim
	if todo.surplus > 0 {
		logger.V(2).Info("Too many replicas", "need", p.want(), "deleting", todo.surplus)
		victims = chooseVictims(todo.candidates, p.related(todo.candidates, todo.surplus), todo.surplus, p.cfg.PodDeletionCost, p.now)
		if todo.surplus < len(todo.candidates) {
			for _, ratio := range ageRatios(todo.candidates, victims, p.now) {
				p.metrics.deletionAgeRatio.Observe(ratio)
			}
		}
	}
	for _, v := range victims {
		logger.V(2).Info("Chose pod to delete", "pod", klog.KObj(v.pod), "because", v.rule, "kept", v.kept)
	}
	pods := append([]*caches.Pod(nil), todo.repeat...)
	for _, v := range victims {
		pods = append(pods, v.pod)
	}
	results := make([]removed, len(pods))
	p.parallel(len(pods), func(i int) { results[i] = p.removePod(ctx, pods[i], p.judgedVersion(pods[i])) })
	var first error
	for i, r := range results {
		if err := p.noteRemove(pods[i], r); err != nil && (first == nil || errors.Is(err, context.Canceled)) {
			first = err
		}
	}
	return first
}

// related are the pods that do the same work as those to rank: the active pods of all ReplicaSets with our controller. Without one they
// are our own.
func (p *pass) related(own []*caches.Pod, surplus int) []*caches.Pod {
	owner := metav1.GetControllerOfNoCopy(p.rs)
	if owner == nil || surplus >= len(own) {
		return own
	}
	related := own[:len(own):len(own)]
	for _, sibling := range p.deps.ReplicaSets.ControlledBy(owner.UID) {
		if sibling.UID != p.rs.UID && sibling.Namespace == p.rs.Namespace {
			related = append(related, p.deps.Pods.ControlledBy(sibling.UID)...)
		}
	}
	return related
}

// judgedVersion is the version of the pod that was found superfluous: for a delete that is sent again, the one it was sent with.
func (p *pass) judgedVersion(pod *caches.Pod) string {
	if d, ok := p.ledger.doomed[pod.UID]; ok {
		return d.version
	}
	return pod.ResourceVersion
}

// removed is what became of one delete.
type removed struct {
	outcome outcome     // done, missing (gone already), conflict (to be judged again), unknown, stopped or rejected
	version string      // of the last delete that was sent
	changed *caches.Pod // on conflict: the pod as it is now
	err     error
}

// removePod deletes the pod if it still is the version that was judged, or has changed in ways that do not matter since.
func (p *pass) removePod(ctx context.Context, pod *caches.Pod, version string) removed {
	if worker.Draining(ctx) {
		return removed{outcome: stopped, version: version, err: worker.ErrDraining}
	}
	err := p.sendDelete(ctx, pod, version)
	if classify(err) != conflict {
		return removed{outcome: classify(err), version: version, err: err}
	}
	live, lookErr := p.podNamed(ctx, pod.Name)
	switch {
	case classify(lookErr) == stopped:
		return removed{outcome: stopped, version: version, err: lookErr}
	case lookErr != nil:
		return removed{outcome: rejected, version: version, err: errors.Join(err, lookErr)}
	case live == nil || live.UID != pod.UID || live.DeletionTimestamp != nil:
		return removed{outcome: missing, version: version}
	case !p.ours(live) || !sameStanding(pod, live):
		return removed{outcome: conflict, version: version, changed: live, err: err}
	}
	err = p.sendDelete(ctx, live, live.ResourceVersion)
	return removed{outcome: classify(err), version: live.ResourceVersion, changed: live, err: err}
}

func (p *pass) sendDelete(ctx context.Context, pod *caches.Pod, version string) error {
	return p.deps.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version}})
}

// sameStanding reports whether a pod would be ranked as before, as far as its node, readiness and deletion cost go.
func sameStanding(before, now *caches.Pod) bool {
	return before.NodeName == now.NodeName && isReady(before) == isReady(now) &&
		before.Annotations[corev1.PodDeletionCost] == now.Annotations[corev1.PodDeletionCost]
}

// noteRemove enters one result into the ledger and tells users of it. It returns the error that the sync fails with.
func (p *pass) noteRemove(pod *caches.Pod, r removed) error {
	_, repeated := p.ledger.doomed[pod.UID]
	switch r.outcome {
	case done, missing:
		delete(p.ledger.doomed, pod.UID)
		p.ledger.gone[pod.UID] = struct{}{}
		if repeated {
			fate := fateAbsent
			if r.outcome == missing {
				fate = fateConfirmed
			}
			p.metrics.lostAnswers.WithLabelValues("delete", fate).Inc()
		}
		if r.outcome == done {
			p.deps.Recorder.Eventf(p.rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
		}
		return nil
	case conflict:
		// No delete that was sent can succeed any more, for the version is past. Wait until the cache shows why, and judge again.
		delete(p.ledger.doomed, pod.UID)
		if r.changed != nil {
			p.ledger.wrotePod(r.changed.ResourceVersion)
		}
		p.again(barrierRecheck)
		return nil
	case stopped:
		p.ledger.doomed[pod.UID] = doom{version: r.version}
		return r.err
	case unknown:
		p.ledger.doomed[pod.UID] = doom{version: r.version}
	}
	p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, reasonFailedDelete, "Error deleting: %v", forUsers(r.err))
	return fmt.Errorf("unable to delete pods: %w", r.err)
}
