package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
)

// refusedFor is how long a pod that the API server does not let us adopt is left alone, unless it changes.
const refusedFor = time.Minute

// settleOwnership adopts and releases, and returns the adopted pods. It tries every pod; errors other than a definite refusal of one
// pod end the sync, because a wrong count would follow.
func (p *pass) settleOwnership(ctx context.Context, c claims) ([]*caches.Pod, error) {
	toAdopt := p.notRefused(c.adopt)
	var failures []error
	if len(toAdopt) > 0 {
		if err := p.mayAdopt(ctx); err != nil {
			failures = append(failures, err)
			toAdopt = nil
		}
	}
	var adopted []*caches.Pod
	for i, answer := range p.patchOwners(ctx, toAdopt, adoptPatch) {
		pod, err := p.adopted(ctx, toAdopt[i], answer)
		failures = append(failures, err)
		if pod != nil {
			adopted = append(adopted, pod)
		}
	}
	for i, answer := range p.patchOwners(ctx, c.release, releasePatch) {
		failures = append(failures, p.released(ctx, c.release[i], answer))
	}
	return adopted, errors.Join(failures...)
}

type patched struct {
	pod *corev1.Pod
	err error
}

// patchOwners patches the owner references of pods and enters what was written into the ledger.
func (p *pass) patchOwners(ctx context.Context, pods []*caches.Pod, patch func(*appsv1.ReplicaSet, types.UID) ([]byte, error)) []patched {
	answers := make([]patched, len(pods))
	p.parallel(len(pods), func(i int) {
		body, err := patch(p.rs, pods[i].UID)
		if err != nil {
			answers[i].err = err
			return
		}
		answers[i].pod, answers[i].err = p.deps.Client.CoreV1().Pods(p.rs.Namespace).
			Patch(ctx, pods[i].Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	})
	for _, answer := range answers {
		if answer.err == nil {
			p.ledger.wrotePod(answer.pod.ResourceVersion)
		}
	}
	return answers
}

// mayAdopt makes sure that the ReplicaSet of the cache still exists and is not being deleted. It is asked after the pods were listed:
// a pod orphaned by the deletion of its ReplicaSet must not be taken back by a cached copy of it.
func (p *pass) mayAdopt(ctx context.Context) error {
	rs, err := p.liveSet(ctx)
	if err != nil {
		return err
	}
	if rs.DeletionTimestamp != nil {
		return fmt.Errorf("adopt pods: ReplicaSet %s is being deleted since %v", p.rs.Name, rs.DeletionTimestamp)
	}
	return nil
}

// notRefused leaves out the pods whose adoption was refused a moment ago.
func (p *pass) notRefused(pods []*caches.Pod) []*caches.Pod {
	if len(p.ledger.refused) == 0 {
		return pods
	}
	var rest []*caches.Pod
	for _, pod := range pods {
		if r, ok := p.ledger.refused[pod.UID]; ok && p.now.Before(r.until) {
			p.again(r.until.Sub(p.now))
			continue
		}
		rest = append(rest, pod)
	}
	return rest
}

// adopted takes the answer to an adoption. It returns the pod if it counts from now on: the answer may show that it has changed.
func (p *pass) adopted(ctx context.Context, pod *caches.Pod, answer patched) (*caches.Pod, error) {
	switch {
	case answer.err == nil:
		klog.FromContext(ctx).V(2).Info("Adopted pod", "pod", klog.KObj(pod))
		p.deps.Recorder.Eventf(p.rs, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopted pod: %v", pod.Name)
		if now := p.deps.Pods.Trim(answer.pod); p.ours(now) {
			return now, nil
		}
		return nil, nil
	case apierrors.IsNotFound(answer.err):
		return nil, nil
	case isRefusal(answer.err):
		p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, "FailedAdopt", "Error adopting pod %v: %v", pod.Name, answer.err)
		p.ledger.refused[pod.UID] = refusal{version: pod.ResourceVersion, until: p.now.Add(refusedFor)}
		p.again(refusedFor)
		return nil, nil
	}
	return nil, fmt.Errorf("adopt pod %s: %w", pod.Name, answer.err)
}

// released takes the answer to a release. A pod that is gone, or that is another under the old name, needs none.
func (p *pass) released(ctx context.Context, pod *caches.Pod, answer patched) error {
	switch {
	case answer.err == nil:
		klog.FromContext(ctx).V(2).Info("Released pod", "pod", klog.KObj(pod))
		return nil
	case apierrors.IsNotFound(answer.err) || apierrors.IsInvalid(answer.err):
		return nil
	case isRefusal(answer.err):
		p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, "FailedRelease", "Error releasing pod %v: %v", pod.Name, answer.err)
		return nil
	}
	return fmt.Errorf("release pod %s: %w", pod.Name, answer.err)
}

// isRefusal reports whether an answer is about this one pod and would be the same if asked again.
func isRefusal(err error) bool {
	return classify(err) == rejected && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
}
