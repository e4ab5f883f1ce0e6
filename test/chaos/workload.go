package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	// steady holds ReplicaSets with a constant spec and no other writer: only managers change the number of pods.
	steady     = "steady"
	wild       = "wild"
	steadySets = 4
	wildSets   = 6
	opTimeout  = 3 * time.Second
)

// workload is the user.
type workload struct {
	*rig
	draw *rand.Rand
	ops  []op
	pods int // made so far, for names
}

type op struct {
	weight int
	do     func(context.Context) error
}

func newWorkload(r *rig) *workload {
	w := &workload{rig: r, draw: r.random("workload")}
	w.ops = []op{
		{10, w.killSteadyPod}, {4, w.finishSteadyPod}, {3, w.unreadySteadyPod},
		{6, w.scale}, {2, w.changeTemplate}, {2, w.makeSet}, {2, w.deleteSet}, {4, w.killWildPod},
		{3, w.releasePod}, {3, w.readoptPod}, {3, w.makeOrphan}, {2, w.makeForeign}, {2, w.finishWildPod},
		{1, w.setQuota}, {2, w.liftQuota}, {2, w.pinPod}, {2, w.unpinPods}, {1, w.setDeletionCost},
		{3, w.makeNamespace}, {3, w.fillNamespace}, {3, w.deleteNamespace}, {3, w.unpinContent},
		{1, w.addType}, {1, w.removeType}, {2, w.makeWidget},
		{4, w.rollOut}, {2, w.scaleDeployment}, {2, w.pauseDeployment},
		{2, w.silenceNode}, {2, w.wakeNode}, {1, w.deleteNode}, {1, w.taintNode}, {2, w.untaintNode}, {1, w.outOfService},
	}
	return w
}

func (w *workload) begin(ctx context.Context) error {
	for _, name := range []string{steady, wild, rolling} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := w.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace: %w", err)
		}
	}
	for i := range steadySets {
		if err := w.createSet(ctx, w.set(steady, fmt.Sprintf("steady-%d", i), int32(2+w.draw.IntN(5)))); err != nil {
			return err
		}
	}
	for i := range wildSets {
		if err := w.createSet(ctx, w.set(wild, fmt.Sprintf("wild-%d", i), int32(w.draw.IntN(6)))); err != nil {
			return err
		}
	}
	if _, err := controlplane.StartKubelet(ctx, w.client, rolling); err != nil {
		return err
	}
	return w.createDeployments(ctx)
}

func (w *workload) run(ctx context.Context) {
	total := 0
	for _, o := range w.ops {
		total += o.weight
	}
	for pause(ctx, time.Duration(20+w.draw.IntN(200))*time.Millisecond) {
		n := w.draw.IntN(total)
		for _, o := range w.ops {
			if n -= o.weight; n < 0 {
				w.attempt(ctx, o)
				break
			}
		}
	}
}

func (w *workload) attempt(ctx context.Context, o op) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	_ = o.do(ctx)
}

func (w *workload) set(namespace, name string, replicas int32) *appsv1.ReplicaSet {
	everywhere, seconds := w.draw.IntN(4) == 0, int64(1+w.draw.IntN(3))
	return controlplane.ReplicaSet(namespace, name, replicas, func(rs *appsv1.ReplicaSet) {
		rs.Spec.MinReadySeconds = int32(w.draw.IntN(3))
		spec := &rs.Spec.Template.Spec
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		if everywhere {
			spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			return
		}
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
	})
}

func (w *workload) createSet(ctx context.Context, rs *appsv1.ReplicaSet) error {
	if _, err := w.client.AppsV1().ReplicaSets(rs.Namespace).Create(ctx, rs, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make ReplicaSet: %w", err)
	}
	w.note(keyOf(rs), "ReplicaSet created with %d replicas", *rs.Spec.Replicas)
	return nil
}

func pick[T any](from []T, draw *rand.Rand) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[draw.IntN(len(from))], true
}

func (w *workload) somePod(accept func(*corev1.Pod) bool) (*corev1.Pod, bool) {
	return pick(current(w.histories.pods, accept), w.draw)
}

func owned(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) != nil }

func (w *workload) killSteadyPod(ctx context.Context) error {
	return w.kill(ctx, func(p *corev1.Pod) bool { return p.Namespace == steady && active(p) })
}

func (w *workload) killWildPod(ctx context.Context) error {
	return w.kill(ctx, func(p *corev1.Pod) bool {
		return p.Namespace != steady && p.Namespace != rolling && p.DeletionTimestamp == nil
	})
}

func (w *workload) kill(ctx context.Context, accept func(*corev1.Pod) bool) error {
	pod, ok := w.somePod(accept)
	if !ok {
		return nil
	}
	var opts metav1.DeleteOptions
	if w.draw.IntN(3) == 0 {
		opts.GracePeriodSeconds = new(int64)
	}
	w.note(keyOf(pod), "pod deleted by the user")
	return w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, opts)
}

func (w *workload) finishSteadyPod(ctx context.Context) error {
	return w.finish(ctx, func(p *corev1.Pod) bool { return p.Namespace == steady && active(p) && p.Spec.NodeName != "" })
}

func (w *workload) finishWildPod(ctx context.Context) error {
	return w.finish(ctx, func(p *corev1.Pod) bool { return p.Namespace == wild && active(p) && p.Spec.NodeName != "" })
}

func (w *workload) finish(ctx context.Context, accept func(*corev1.Pod) bool) error {
	pod, ok := w.somePod(accept)
	if !ok {
		return nil
	}
	phase, _ := pick([]corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}, w.draw)
	w.note(keyOf(pod), "pod has %s", phase)
	return w.setStatus(ctx, pod, func(s *corev1.PodStatus) { s.Phase, s.Conditions = phase, nil })
}

func (w *workload) unreadySteadyPod(ctx context.Context) error {
	pod, ok := w.somePod(func(p *corev1.Pod) bool { return p.Namespace == steady && active(p) && ready(p.Status.Conditions) })
	if !ok {
		return nil
	}
	return w.setStatus(ctx, pod, func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}}
	})
}

func (w *workload) setStatus(ctx context.Context, pod *corev1.Pod, edit func(*corev1.PodStatus)) error {
	pod = pod.DeepCopy()
	edit(&pod.Status)
	_, err := w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
