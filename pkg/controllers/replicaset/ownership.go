package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/ownerpatch"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

// owners adopts and releases pods.
type owners struct {
	client   kubernetes.Interface
	pods     *caches.Pods
	read     *reader
	slots    *writelimit.Slots
	recorder record.EventRecorder
	clock    clock.Clock
}

// change is one of the two things that can be done about the owner of a pod.
type change struct {
	patch   func(*appsv1.ReplicaSet, *caches.Pod) ([]byte, error)
	applies func(claims) bool // to the one pod that was claimed
	took    func(o *owners, ctx context.Context, t task, pod *caches.Pod, reply patched) (again time.Duration, err error)
}

var (
	adopt   = change{adoptPatch, func(c claims) bool { return len(c.adopt) > 0 }, (*owners).adopted}
	release = change{releasePatch, func(c claims) bool { return len(c.release) > 0 }, (*owners).released}
)

// adoptAndRelease sorts the pods, then adopts and releases, and returns the claims with what has been adopted, and when to try again what was refused. It
// tries every pod; errors other than a definite refusal of one pod end the sync, because a wrong count would follow.
func (o *owners) adoptAndRelease(ctx context.Context, t task) (c claims, again time.Duration, err error) {
	c = claim(t.rs, t.selector, t.pods, t.ledger.deleted)
	if t.rs.DeletionTimestamp != nil {
		return c, 0, nil
	}
	toAdopt, _ := ownerpatch.Admitted(t.throttle.ownership, c.adopt, t.now)
	toRelease, _ := ownerpatch.Admitted(t.throttle.ownership, c.release, t.now)
	var failures []error
	if len(toAdopt) > 0 {
		if err := o.mayAdopt(ctx, t); err != nil {
			failures = append(failures, err)
			toAdopt = nil
		}
	}
	adopted := o.change(ctx, t, toAdopt, adopt)
	var released changed
	if adopted.cut == nil {
		released = o.change(ctx, t, toRelease, release)
	}
	c.mine = append(c.mine, slices.Concat(adopted.ours, released.ours)...)
	failures = append(failures, adopted.err, released.err)
	return c, t.throttle.ownership.Remaining(t.now), cmp.Or(errors.Join(failures...), adopted.cut, released.cut)
}

// changed is what became of changing the owners of pods.
type changed struct {
	ours  []*caches.Pod // those that count for the ReplicaSet now
	again time.Duration // try again what was refused
	err   error         // failures, refusals apart
	cut   error         // why not all were tried
}

// change changes the owner references of pods, all at once as far as there are slots.
func (o *owners) change(ctx context.Context, t task, pods []*caches.Pod, what change) changed {
	replies := make([]patched, len(pods))
	begun, cut := o.slots.Each(ctx, t.key, t.deadline(), len(pods), func(i int) { replies[i] = o.patchOwner(ctx, t, pods[i], what) })
	result := changed{cut: cut}
	var failures []error
	for i, reply := range replies[:begun] {
		if reply.pod != nil {
			t.ledger.barrier.WroteAt(o.pods, reply.pod.ResourceVersion, t.now)
		}
		again, err := what.took(o, ctx, t, pods[i], reply)
		failures, result.again = append(failures, err), controller.MinPositive(result.again, again)
		if reply.err == nil && reply.pod != nil && t.counts(reply.pod) {
			result.ours = append(result.ours, reply.pod)
		}
	}
	result.err = errors.Join(failures...)
	return result
}

// patched is the reply to one patch.
type patched struct {
	pod     *caches.Pod // as it is now; nil: gone, or not known
	changed bool        // before it was patched, so that there was no reason to any more
	err     error
}

// patchOwner patches the pod if it still is the version that was judged, or if it is to be patched as it is now, too.
func (o *owners) patchOwner(ctx context.Context, t task, pod *caches.Pod, what change) patched {
	reply := o.sendPatch(ctx, t, pod, what)
	if outcome.FromError(reply.err) != outcome.Conflict {
		return reply
	}
	live, err := o.read.pod(ctx, pod.Namespace, pod.Name)
	switch {
	case err != nil:
		return patched{err: errors.Join(reply.err, err)}
	case live == nil || live.UID != pod.UID:
		return patched{changed: true}
	case !what.applies(claim(t.rs, t.selector, []*caches.Pod{live}, t.ledger.deleted)):
		return patched{pod: live, changed: true}
	}
	return o.sendPatch(ctx, t, live, what)
}

func (o *owners) sendPatch(ctx context.Context, t task, pod *caches.Pod, what change) patched {
	body, err := what.patch(t.rs, pod)
	if err != nil {
		return patched{err: err}
	}
	reply, err := o.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return patched{err: err}
	}
	return patched{pod: o.pods.Trim(reply)}
}

// mayAdopt makes sure that the ReplicaSet of the cache still exists and is not being deleted. It is asked after the pods were listed:
// a pod orphaned by the deletion of its ReplicaSet must not be taken back by a cached copy of it.
func (o *owners) mayAdopt(ctx context.Context, t task) error {
	rs, err := o.read.set(ctx, t.rs)
	if err != nil {
		return err
	}
	if rs.DeletionTimestamp != nil {
		return fmt.Errorf("adopt pods: ReplicaSet %s is being deleted since %v", t.rs.Name, rs.DeletionTimestamp)
	}
	return nil
}

// adopted takes the reply to an adoption.
func (o *owners) adopted(ctx context.Context, t task, pod *caches.Pod, reply patched) (again time.Duration, err error) {
	switch {
	case apierrors.IsNotFound(reply.err), reply.changed:
		return 0, nil
	case reply.err == nil && !controls(t.rs, reply.pod):
		t.throttle.disowned = true
		return o.refused(t, reply.pod, "FailedAdopt", "Error adopting pod %v: it was changed on its way and has no owner", pod.Name), nil
	case reply.err == nil:
		t.throttle.disowned = false
		klog.FromContext(ctx).V(2).Info("Adopted pod", "pod", klog.KObj(pod))
		o.recorder.Eventf(t.rs, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopted pod: %v", pod.Name)
		return 0, nil
	case ownerpatch.Refused(reply.err):
		return o.refused(t, pod, "FailedAdopt", "Error adopting pod %v: %v", pod.Name, reply.err), nil
	}
	return 0, fmt.Errorf("adopt pod %s: %w", pod.Name, reply.err)
}

// released takes the reply to a release. A pod that is gone, or that is another under the old name, needs none.
func (o *owners) released(ctx context.Context, t task, pod *caches.Pod, reply patched) (again time.Duration, err error) {
	switch {
	case apierrors.IsNotFound(reply.err), apierrors.IsInvalid(reply.err), reply.changed:
		return 0, nil
	case reply.err == nil:
		klog.FromContext(ctx).V(2).Info("Released pod", "pod", klog.KObj(pod))
		return 0, nil
	case ownerpatch.Refused(reply.err):
		return o.refused(t, pod, "FailedRelease", "Error releasing pod %v: %v", pod.Name, reply.err), nil
	}
	return 0, fmt.Errorf("release pod %s: %w", pod.Name, reply.err)
}

// refused tells the user, and leaves the pod alone for a while. It returns how long.
func (o *owners) refused(t task, pod *caches.Pod, reason, format string, args ...any) time.Duration {
	o.recorder.Eventf(t.rs, corev1.EventTypeWarning, reason, format, args...)
	return t.throttle.ownership.Note(pod, o.clock.Now())
}

// adoptPatch makes rs the controller of the pod.
func adoptPatch(rs *appsv1.ReplicaSet, pod *caches.Pod) ([]byte, error) {
	return ownerpatch.Adopt(pod, controllerRef(rs))
}

// releasePatch removes the reference to rs.
func releasePatch(rs *appsv1.ReplicaSet, pod *caches.Pod) ([]byte, error) {
	return ownerpatch.Release(pod, rs.UID)
}
