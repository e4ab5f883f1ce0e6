package replicaset

import (
	"cmp"
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

	"minikcm/pkg/answer"
	"minikcm/pkg/caches"
)

// refusedFor is how long a pod is left alone that the API server does not let us adopt or release, unless it changes.
const refusedFor = time.Minute

// change is one of the two things that can be done about the owner of a pod.
type change struct {
	patch   func(*appsv1.ReplicaSet, *caches.Pod) ([]byte, error)
	applies func(claims) bool // to the one pod that was claimed
}

var (
	adopt   = change{adoptPatch, func(c claims) bool { return len(c.adopt) > 0 }}
	release = change{releasePatch, func(c claims) bool { return len(c.release) > 0 }}
)

// settleOwnership adopts and releases, and returns the pods that count from now on. It tries every pod; errors other than a definite refusal
// of one pod end the sync, because a wrong count would follow.
func (p *pass) settleOwnership(ctx context.Context, c claims) ([]*caches.Pod, error) {
	toAdopt, toRelease := p.notRefused(c.adopt), p.notRefused(c.release)
	var failures []error
	if len(toAdopt) > 0 {
		if err := p.mayAdopt(ctx); err != nil {
			failures = append(failures, err)
			toAdopt = nil
		}
	}
	answers, cut := p.patchOwners(ctx, toAdopt, adopt)
	var ours []*caches.Pod
	for i, reply := range answers {
		failures = append(failures, p.adopted(ctx, toAdopt[i], reply))
		ours = p.appendOurs(ours, reply)
	}
	if cut == nil {
		answers, cut = p.patchOwners(ctx, toRelease, release)
		for i, reply := range answers {
			failures = append(failures, p.released(ctx, toRelease[i], reply))
			ours = p.appendOurs(ours, reply)
		}
	}
	return ours, cmp.Or(errors.Join(failures...), cut)
}

func (p *pass) appendOurs(pods []*caches.Pod, reply patched) []*caches.Pod {
	if reply.err == nil && reply.pod != nil && p.ours(reply.pod) {
		return append(pods, reply.pod)
	}
	return pods
}

// patched is the reply to one patch.
type patched struct {
	pod     *caches.Pod // as it is now; nil: gone, or not known
	changed bool        // before it was patched, so that there was no reason to any more
	err     error
}

// patchOwners changes the owner references of pods and enters what was found or written into the ledger. If there was no time for all of them
// there are fewer answers, and an error.
func (p *pass) patchOwners(ctx context.Context, pods []*caches.Pod, what change) ([]patched, error) {
	answers := make([]patched, len(pods))
	begun, cut := p.parallel(ctx, len(pods), func(i int) { answers[i] = p.patchOwner(ctx, pods[i], what) })
	answers = answers[:begun]
	for _, reply := range answers {
		if reply.pod != nil {
			p.ledger.wrotePod(reply.pod.ResourceVersion)
		}
	}
	return answers, cut
}

// patchOwner patches the pod if it still is the version that was judged, or if it is to be patched as it is now, too.
func (p *pass) patchOwner(ctx context.Context, pod *caches.Pod, what change) patched {
	reply := p.sendPatch(ctx, pod, what)
	if answer.Of(reply.err) != answer.Conflict {
		return reply
	}
	live, err := p.podNamed(ctx, pod.Name)
	switch {
	case err != nil:
		return patched{err: errors.Join(reply.err, err)}
	case live == nil || live.UID != pod.UID:
		return patched{changed: true}
	case !what.applies(claim(p.rs, p.selector, []*caches.Pod{live}, p.ledger.gone)):
		return patched{pod: live, changed: true}
	}
	return p.sendPatch(ctx, live, what)
}

func (p *pass) sendPatch(ctx context.Context, pod *caches.Pod, what change) patched {
	body, err := what.patch(p.rs, pod)
	if err != nil {
		return patched{err: err}
	}
	reply, err := p.deps.Client.CoreV1().Pods(p.rs.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return patched{err: err}
	}
	return patched{pod: p.deps.Pods.Trim(reply)}
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

// notRefused leaves out the pods whose adoption or release was refused a moment ago.
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

// refuse notes that a pod is not to be adopted or released for a while.
func (p *pass) refuse(pod *caches.Pod, version, reason, format string, args ...any) {
	p.deps.Recorder.Eventf(p.rs, corev1.EventTypeWarning, reason, format, args...)
	p.ledger.refused[pod.UID] = refusal{version: version, until: p.deps.Clock.Now().Add(refusedFor)}
	p.again(refusedFor)
}

// adopted takes the reply to an adoption.
func (p *pass) adopted(ctx context.Context, pod *caches.Pod, reply patched) error {
	switch {
	case apierrors.IsNotFound(reply.err), reply.changed:
		return nil
	case reply.err == nil && !controls(p.rs, reply.pod):
		p.ledger.undone = true
		p.refuse(pod, reply.pod.ResourceVersion, "FailedAdopt", "Error adopting pod %v: it was changed on its way and has no owner", pod.Name)
		return nil
	case reply.err == nil:
		p.ledger.undone = false
		klog.FromContext(ctx).V(2).Info("Adopted pod", "pod", klog.KObj(pod))
		p.deps.Recorder.Eventf(p.rs, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopted pod: %v", pod.Name)
		return nil
	case isRefusal(reply.err):
		p.refuse(pod, pod.ResourceVersion, "FailedAdopt", "Error adopting pod %v: %v", pod.Name, reply.err)
		return nil
	}
	return fmt.Errorf("adopt pod %s: %w", pod.Name, reply.err)
}

// released takes the reply to a release. A pod that is gone, or that is another under the old name, needs none.
func (p *pass) released(ctx context.Context, pod *caches.Pod, reply patched) error {
	switch {
	case apierrors.IsNotFound(reply.err), apierrors.IsInvalid(reply.err), reply.changed:
		return nil
	case reply.err == nil:
		klog.FromContext(ctx).V(2).Info("Released pod", "pod", klog.KObj(pod))
		return nil
	case isRefusal(reply.err):
		p.refuse(pod, pod.ResourceVersion, "FailedRelease", "Error releasing pod %v: %v", pod.Name, reply.err)
		return nil
	}
	return fmt.Errorf("release pod %s: %w", pod.Name, reply.err)
}

// isRefusal reports whether a reply is about this one pod and would be the same if asked again.
func isRefusal(err error) bool {
	return answer.Of(err) == answer.Refused && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
}
