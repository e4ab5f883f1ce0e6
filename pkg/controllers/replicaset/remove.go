package replicaset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/answer"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// remove deletes: again some of the pods whose delete was not answered, and the surplus.
func (p *pass) remove(ctx context.Context, todo plan) error {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Too many replicas", "need", p.want(), "deleting", todo.surplus, "deletingAgain", todo.repeat)
	victims := p.choose(todo.doomed, todo.repeat)
	if todo.surplus > 0 {
		chosen := p.choose(todo.candidates, todo.surplus)
		if todo.surplus < len(todo.candidates) {
			for _, ratio := range ageRatios(todo.candidates, chosen, p.now) {
				p.metrics.deletionAgeRatio.Observe(ratio)
			}
		}
		victims = append(victims, chosen...)
	}
	for _, v := range victims {
		logger.V(2).Info("Chose pod to delete", "pod", klog.KObj(v.pod), "because", v.rule, "kept", v.kept)
	}
	results := make([]removed, len(victims))
	begun, err := p.parallel(ctx, len(victims), func(i int) { results[i] = p.removePod(ctx, victims[i].pod, p.judgedVersion(victims[i].pod)) })
	if errors.Is(err, errCut) {
		p.again(atOnce)
		err = nil
	}
	first := err
	for i, r := range results[:begun] {
		if err := p.noteRemove(victims[i].pod, r); err != nil && (first == nil || stopping(err)) {
			first = err
		}
	}
	return first
}

// choose picks n of the pods to delete.
func (p *pass) choose(pods []*caches.Pod, n int) []victim {
	return chooseVictims(pods, p.related(pods, n), n, p.cfg.PodDeletionCost, p.now)
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
	outcome outcome     // done, missing (gone already), conflict (to be judged again), unsent, unknown or rejected
	version string      // of the last delete that was sent
	changed *caches.Pod // on conflict: the pod as it is now
	err     error
}

// removePod deletes the pod if it still is the version that was judged, or has changed in ways that do not matter since.
func (p *pass) removePod(ctx context.Context, pod *caches.Pod, version string) removed {
	if controller.Draining(ctx) {
		return removed{outcome: unsent, version: version, err: controller.ErrDraining}
	}
	first := p.sendDelete(ctx, pod, version)
	if first.outcome != answer.Conflict {
		return first
	}
	live, err := p.podNamed(ctx, pod.Name)
	switch {
	case err != nil:
		return removed{outcome: answer.Refused, version: version, err: errors.Join(first.err, err)}
	case live == nil || live.UID != pod.UID || live.DeletionTimestamp != nil:
		return removed{outcome: answer.Missing, version: version}
	case !p.ours(live) || !sameStanding(pod, live):
		return removed{outcome: answer.Conflict, version: version, changed: live, err: first.err}
	}
	second := p.sendDelete(ctx, live, live.ResourceVersion)
	second.changed = live
	return second
}

// sendDelete deletes a version of a pod. A pod that does not linger is marked and removed in two steps, and admission is asked before each
// (apiserver v0.37, Store.Delete): a refusal may come after the first.
func (p *pass) sendDelete(ctx context.Context, pod *caches.Pod, version string) removed {
	outcome, err := send(ctx, func(ctx context.Context) error {
		return p.deps.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &version}})
	})
	if outcome == answer.Refused && !lingers(pod) {
		outcome = answer.Unknown
	}
	return removed{outcome: outcome, version: version, err: err}
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
	case answer.Done, answer.Missing:
		delete(p.ledger.doomed, pod.UID)
		p.ledger.gone[pod.UID] = struct{}{}
		if repeated {
			fate := fateAbsent
			if r.outcome == answer.Missing {
				fate = fateConfirmed
			}
			p.metrics.lostAnswers.WithLabelValues("delete", fate).Inc()
		}
		if r.outcome == answer.Done {
			p.deps.Recorder.Eventf(p.rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
		}
		return nil
	case answer.Conflict:
		// No delete that was sent can succeed any more, for the version is past. Wait until the cache shows why, and judge again.
		delete(p.ledger.doomed, pod.UID)
		if r.changed != nil {
			p.ledger.wrotePod(r.changed.ResourceVersion)
		}
		p.again(barrierRecheck)
		return nil
	case answer.Unknown:
		p.ledger.doomed[pod.UID] = doom{version: r.version, until: p.deps.Clock.Now().Add(landsWithin)}
	}
	if stopping(r.err) {
		return r.err
	}
	p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, reasonFailedDelete, "Error deleting: %v", forUsers(r.err))
	return fmt.Errorf("unable to delete pods: %w", r.err)
}
