package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func judgeSet(rs *appsv1.ReplicaSet, all []corev1.Pod, isDead func(node string) bool) []violation {
	var wrong []violation
	complain := func(format string, args ...any) {
		wrong = append(wrong, violation{keyOf(rs), fmt.Sprintf(format, args...)})
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		complain("selector: %v", err)
		return wrong
	}
	if rs.DeletionTimestamp != nil {
		return wrong // see judgeGarbage
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	var have, isReady, labelled, terminating int32
	for _, p := range all {
		if p.Namespace != rs.Namespace {
			continue
		}
		ref, matches := metav1.GetControllerOf(&p), selector.Matches(labels.Set(p.Labels))
		mine := ref != nil && ref.UID == rs.UID
		switch {
		case mine && active(&p) && !matches:
			complain("pod %s does not match any more and was not released", p.Name)
		case ref == nil && active(&p) && matches:
			complain("pod %s is an orphan and was not adopted", p.Name)
		case mine && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded && matches:
			terminating++
		case mine && active(&p):
			have++
			if ready(p.Status.Conditions) {
				isReady++
			} else if !isDead(p.Spec.NodeName) {
				complain("pod %s is not ready, though its node %q lives", p.Name, p.Spec.NodeName)
			}
			if template.Matches(labels.Set(p.Labels)) {
				labelled++
			}
		}
	}
	if have != *rs.Spec.Replicas {
		complain("has %d active pods, want %d", have, *rs.Spec.Replicas)
	}
	s := rs.Status
	if s.Replicas != have || s.ReadyReplicas != isReady || s.AvailableReplicas != isReady || s.FullyLabeledReplicas != labelled ||
		s.ObservedGeneration != rs.Generation || len(s.Conditions) > 0 ||
		s.TerminatingReplicas != nil && *s.TerminatingReplicas != terminating {
		complain("status is %+v (terminating %v), want %d replicas, %d ready, %d labelled, %d terminating, generation %d, no conditions",
			s, deref(s.TerminatingReplicas), have, isReady, labelled, terminating, rs.Generation)
	}
	return wrong
}

func deref(n *int32) any {
	if n == nil {
		return "unset"
	}
	return *n
}

func judgeNode(node *corev1.Node, dead bool) []violation {
	var taints []string
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
	}
	slices.Sort(taints)
	ready, want := nodeReady(node), corev1.ConditionTrue
	var wanted []string
	if dead {
		want = corev1.ConditionUnknown
		wanted = []string{corev1.TaintNodeUnreachable + ":NoExecute", corev1.TaintNodeUnreachable + ":NoSchedule"}
	}
	if ready != want || !slices.Equal(taints, wanted) {
		return []violation{{node.Name, fmt.Sprintf("node (dead: %v) is Ready=%s with taints %v, want %s with %v", dead, ready, taints, want, wanted)}}
	}
	return nil
}

func judgePod(p *corev1.Pod, nodes map[string]*corev1.Node) []violation {
	complain := func(text string) []violation { return []violation{{keyOf(p), text}} }
	if p.Spec.NodeName == "" {
		return nil
	}
	node := nodes[p.Spec.NodeName]
	switch {
	case node == nil:
		return complain("pod is on node " + p.Spec.NodeName + ", which is gone")
	case p.DeletionTimestamp != nil && nodeReady(node) == corev1.ConditionTrue:
		return complain("pod is terminating on a living node")
	case p.DeletionTimestamp == nil && active(p) && !mayStay(p, node):
		return complain(fmt.Sprintf("pod was not evicted from %s with taints %v", node.Name, node.Spec.Taints))
	case nodeReady(node) != corev1.ConditionTrue && ready(p.Status.Conditions):
		return complain("pod is Ready on a dead node")
	}
	return nil
}

// longToleration exceeds the length of a run. The default toleration for dead nodes is 300 s.
const longToleration = 100

// mayStay reports whether a pod tolerates the taints of a node to the end of the run.
func mayStay(p *corev1.Pod, node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.TolerationSeconds == nil || *t.TolerationSeconds > longToleration)
		})
	})
}

func (r *rig) complaintsOfManagers(ctx context.Context, before map[string]size) []violation {
	var all []violation
	complain := func(of, format string, args ...any) { all = append(all, violation{of, fmt.Sprintf(format, args...)}) }
	var leaders []string
	// A process may become the leader between the two measurements, so the larger value counts for all.
	var most size
	for _, b := range before {
		most.goroutines, most.memory, most.watches = max(most.goroutines, b.goroutines), max(most.memory, b.memory), max(most.watches, b.watches)
	}
	for _, s := range r.slots {
		for _, page := range []string{"/livez", "/readyz"} {
			if text, err := s.get(ctx, page); err != nil {
				complain(s.name, "%s: %v %s", page, err, text)
			}
		}
		now, err := s.measure(ctx)
		if err != nil {
			complain(s.name, "metrics: %v", err)
			continue
		}
		if now.leader {
			leaders = append(leaders, s.name)
		}
		if now.watches != most.watches || now.goroutines > most.goroutines+40 || now.memory > 2*most.memory+80 {
			complain(s.name, "has %d watches, %.0f goroutines, %.0f MiB; at the start nobody had more than %d, %.0f, %.0f",
				now.watches, now.goroutines, now.memory, most.watches, most.goroutines, most.memory)
		}
	}
	if len(leaders) != 1 {
		complain("", "leaders: %s, want one", strings.Join(leaders, ", "))
	}
	return all
}
