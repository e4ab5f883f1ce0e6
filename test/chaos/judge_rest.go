package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

// longToleration exceeds the length of a run. The default toleration for dead nodes is 300 s.
const longToleration = 100

// complaints are broken promises so far.
type complaints []violation

func (c *complaints) add(of, format string, args ...any) {
	*c = append(*c, violation{of, fmt.Sprintf(format, args...)})
}

// awaitCalm waits for rest and returns the sizes of the managers, of which one leads. On a busy machine the lease may
// just have been lost, and a standby is smaller.
func (r *rig) awaitCalm(ctx context.Context) (sizes []size) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var wrong complaints
	if err := must.Catch(func() {
		must.Poll(ctx, 500*time.Millisecond, func() bool { wrong = r.judgeState(ctx); return len(wrong) == 0 })
	}); err != nil {
		must.Succeed(fmt.Errorf("not calm at the start: %v: %w", wrong, err))
	}
	must.Poll(ctx, 3*time.Second, func() bool {
		sizes = nil
		leaders := 0
		for _, s := range r.slots {
			n := s.measureSize(ctx)
			sizes = append(sizes, n)
			if n.leader {
				leaders++
			}
			r.printLine("%s has %.0f goroutines, %.0f MiB, %d watches, leader: %v", s.name, n.goroutines, n.memory, n.watches, n.leader)
		}
		return leaders > 0
	})
	return sizes
}

func (r *rig) judgeRest(ctx context.Context, before []size) {
	ctx, cancel := context.WithTimeout(ctx, r.options.rest)
	defer cancel()
	begin := time.Now()
	var last complaints
	for ok := true; ok; ok = sleep(ctx, 500*time.Millisecond) {
		wrong := append(r.judgeState(ctx), r.judgeManagers(ctx, before)...)
		if ctx.Err() == nil {
			if len(wrong) == 0 {
				r.printLine("at rest after %.1f s, before: %v", time.Since(begin).Seconds(), last)
				return
			}
			last = wrong
		}
	}
	for _, v := range last {
		r.violate(v.of, fmt.Sprintf("still after %v of quiet: %s", r.options.rest, v.text))
	}
}

func (r *rig) isDead(node string) bool {
	return slices.ContainsFunc(r.kubeletsThatAre(false), func(k *nodeKubelet) bool { return k.name == node })
}

// judgeState judges live reads.
func (r *rig) judgeState(ctx context.Context) (wrong complaints) {
	var pods corev1.PodList
	var sets appsv1.ReplicaSetList
	var deployments appsv1.DeploymentList
	var nodes corev1.NodeList
	var namespaces corev1.NamespaceList
	if err := must.Catch(func() {
		must.Succeed(r.client.List(ctx, &pods))
		must.Succeed(r.client.List(ctx, &sets))
		must.Succeed(r.client.List(ctx, &deployments))
		must.Succeed(r.client.List(ctx, &nodes))
		must.Succeed(r.client.List(ctx, &namespaces))
	}); err != nil {
		wrong.add("", "%v", err)
		return wrong
	}
	ending := map[string]bool{}
	for _, ns := range namespaces.Items {
		if ns.DeletionTimestamp == nil {
			continue
		}
		ending[ns.Name] = true
		// A pod on a dead node, and the namespace of the pod, end when the kubelet or the user removes the pod.
		if !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Namespace == ns.Name && r.isDead(p.Spec.NodeName) }) {
			wrong.add(ns.Name, "namespace is not gone: %+v", ns.Status.Conditions)
		}
	}
	for _, rs := range sets.Items {
		if !ending[rs.Namespace] {
			wrong.judgeSet(&rs, pods.Items, r.isDead)
		}
	}
	for _, d := range deployments.Items {
		if !ending[d.Namespace] {
			wrong.judgeDeployment(&d, sets.Items)
		}
	}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes.Items {
		byName[n.Name] = &n
		wrong.judgeNode(&n, r.isDead(n.Name))
	}
	for _, k := range r.kubelets {
		if byName[k.name] == nil && k.isOn() {
			wrong.add(k.name, "node is not registered")
		}
	}
	for _, p := range pods.Items {
		wrong.judgePod(&p, byName)
	}
	var garbage complaints
	garbage.judgeGarbage(pods.Items, sets.Items, deployments.Items)
	return append(wrong, slices.DeleteFunc(garbage, func(v violation) bool {
		namespace, _, _ := strings.Cut(v.of, "/")
		return ending[namespace]
	})...)
}

func (c *complaints) judgeSet(rs *appsv1.ReplicaSet, all []corev1.Pod, isDead func(node string) bool) {
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		c.add(keyOf(rs), "selector: %v", err)
	}
	if err != nil || rs.DeletionTimestamp != nil { // see judgeGarbage
		return
	}
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	want := appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation, TerminatingReplicas: new(int32)}
	for _, p := range all {
		if p.Namespace != rs.Namespace {
			continue
		}
		ref, matches := metav1.GetControllerOf(&p), selector.Matches(labels.Set(p.Labels))
		mine := ref != nil && ref.UID == rs.UID
		switch {
		case mine && isActive(&p) && !matches:
			c.add(keyOf(rs), "pod %s does not match any more and was not released", p.Name)
		case ref == nil && isActive(&p) && matches:
			c.add(keyOf(rs), "pod %s is an orphan and was not adopted", p.Name)
		case mine && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded && matches:
			*want.TerminatingReplicas++
		case mine && isActive(&p):
			want.Replicas++
			if kubelet.IsReady(&p) {
				want.ReadyReplicas++
				want.AvailableReplicas++
			} else if !isDead(p.Spec.NodeName) {
				c.add(keyOf(rs), "pod %s is not ready, though its node %q lives", p.Name, p.Spec.NodeName)
			}
			if template.Matches(labels.Set(p.Labels)) {
				want.FullyLabeledReplicas++
			}
		}
	}
	if want.Replicas != *rs.Spec.Replicas {
		c.add(keyOf(rs), "has %d active pods, want %d", want.Replicas, *rs.Spec.Replicas)
	}
	if rs.Status.TerminatingReplicas == nil {
		want.TerminatingReplicas = nil
	}
	if !equality.Semantic.DeepEqual(rs.Status, want) {
		c.add(keyOf(rs), "status is %s, want %s", &rs.Status, &want)
	}
}

func (c *complaints) judgeDeployment(d *appsv1.Deployment, all []appsv1.ReplicaSet) {
	want, s := *d.Spec.Replicas, d.Status
	if s.ObservedGeneration != d.Generation || s.Replicas != want || s.UpdatedReplicas != want ||
		s.ReadyReplicas != want || s.AvailableReplicas != want || s.UnavailableReplicas != 0 {
		c.add(keyOf(d), "status of %d replicas at generation %d is %+v", want, d.Generation, s)
	}
	for _, condition := range s.Conditions {
		if condition.Status != corev1.ConditionTrue || condition.Type == appsv1.DeploymentProgressing && condition.Reason != "NewReplicaSetAvailable" {
			c.add(keyOf(d), "condition %s is %s, %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	current := 0
	for _, rs := range all {
		if !metav1.IsControlledBy(&rs, d) {
			continue
		}
		size := int32(0)
		if equality.Semantic.DeepEqual(*templateWithoutHash(&rs), d.Spec.Template) {
			current, size = current+1, want
		}
		if *rs.Spec.Replicas != size {
			c.add(keyOf(d), "ReplicaSet %s wants %d pods instead of %d", rs.Name, *rs.Spec.Replicas, size)
		}
	}
	if current != 1 {
		c.add(keyOf(d), "%d ReplicaSets are of its template, want one", current)
	}
}

func (c *complaints) judgeNode(node *corev1.Node, dead bool) {
	var taints []string
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
	}
	slices.Sort(taints)
	ready, want := controlplane.NodeReady(node), corev1.ConditionTrue
	var wanted []string
	if dead {
		want = corev1.ConditionUnknown
		wanted = []string{corev1.TaintNodeUnreachable + ":NoExecute", corev1.TaintNodeUnreachable + ":NoSchedule"}
	}
	if ready != want || !slices.Equal(taints, wanted) {
		c.add(node.Name, "node (dead: %v) is Ready=%s with taints %v, want %s with %v", dead, ready, taints, want, wanted)
	}
}

func (c *complaints) judgePod(p *corev1.Pod, nodes map[string]*corev1.Node) {
	node := nodes[p.Spec.NodeName]
	switch {
	case p.Spec.NodeName == "":
	case node == nil:
		c.add(keyOf(p), "pod is on node %s, which is gone", p.Spec.NodeName)
	case p.DeletionTimestamp != nil && controlplane.NodeReady(node) == corev1.ConditionTrue:
		c.add(keyOf(p), "pod is terminating on a living node")
	case p.DeletionTimestamp == nil && isActive(p) && !mayStay(p, node):
		c.add(keyOf(p), "pod was not evicted from %s with taints %v", node.Name, node.Spec.Taints)
	case controlplane.NodeReady(node) != corev1.ConditionTrue && kubelet.IsReady(p):
		c.add(keyOf(p), "pod is Ready on a dead node")
	}
}

// mayStay reports whether a pod tolerates the taints of a node to the end of the run.
func mayStay(p *corev1.Pod, node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) &&
				(t.TolerationSeconds == nil || *t.TolerationSeconds > longToleration)
		})
	})
}

func (c *complaints) judgeGarbage(pods []corev1.Pod, sets []appsv1.ReplicaSet, deployments []appsv1.Deployment) {
	var objects []metav1.Object
	exists := map[types.UID]bool{}
	for i := range pods {
		objects = append(objects, &pods[i])
	}
	for i := range sets {
		objects, exists[sets[i].UID] = append(objects, &sets[i]), true
	}
	for i := range deployments {
		objects, exists[deployments[i].UID] = append(objects, &deployments[i]), true
	}
	blocked := map[types.UID]bool{}
	for _, o := range objects {
		dangling, refs := 0, o.GetOwnerReferences()
		for _, ref := range refs {
			if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				blocked[ref.UID] = true
			}
			if (ref.Kind == "ReplicaSet" || ref.Kind == "Deployment") && !exists[ref.UID] {
				dangling++
			}
		}
		if dangling > 0 && dangling == len(refs) && o.GetDeletionTimestamp() == nil {
			c.add(keyOf(o), "%s was not deleted, though its owners are gone", o.GetName())
		}
	}
	for _, o := range objects {
		held := awaitsDependents(o) && !blocked[o.GetUID()] || slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents)
		if o.GetDeletionTimestamp() != nil && held {
			c.add(keyOf(o), "%s is being deleted, and only its finalizers %v hold it", o.GetName(), o.GetFinalizers())
		}
	}
}

func (r *rig) judgeManagers(ctx context.Context, before []size) (wrong complaints) {
	// A process may become the leader between the two measurements, so the larger value counts for all.
	var most size
	for _, b := range before {
		most.goroutines, most.memory, most.watches = max(most.goroutines, b.goroutines), max(most.memory, b.memory), max(most.watches, b.watches)
	}
	var leaders []string
	for _, s := range r.slots {
		for _, page := range []string{"/livez", "/readyz"} {
			if text, err := controlplane.Page(ctx, s.identity, s.port, page); err != nil {
				wrong.add(s.name, "%s: %v %s", page, err, text)
			}
		}
		var now size
		if err := must.Catch(func() { now = s.measureSize(ctx) }); err != nil {
			wrong.add(s.name, "metrics: %v", err)
			continue
		}
		if now.leader {
			leaders = append(leaders, s.name)
		}
		if now.watches != most.watches || now.goroutines > most.goroutines+40 || now.memory > 2*most.memory+80 {
			wrong.add(s.name, "has %d watches, %.0f goroutines, %.0f MiB; at the start at most %d, %.0f, %.0f",
				now.watches, now.goroutines, now.memory, most.watches, most.goroutines, most.memory)
		}
	}
	if len(leaders) != 1 {
		wrong.add("", "leaders: %s, want one", strings.Join(leaders, ", "))
	}
	return wrong
}
