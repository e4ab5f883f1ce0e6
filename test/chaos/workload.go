package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	// steady holds ReplicaSets with a constant spec and no other writer: only managers change the number of pods.
	steady     = "steady"
	wild       = "wild"
	steadySets = 4
	wildSets   = 6
	opTimeout  = 3 * time.Second

	// rolling holds Deployments that only the user and managers change. Pods need no node and become ready at once, so
	// that only managers change the number of available pods.
	rolling = "rolling"
	// The last of rollingDeployments is scaled, too.
	rollingDeployments = 3
	rollingSurge       = 1
	rollingUnavailable = 1
	templates          = 4 // few, so that rollouts are turned round often

	passing     = "passing-" // prefix of namespaces that come and go
	passingMost = 4

	finalizer   = "chaos.example.com/pinned"
	detachedKey = "detached"
	userTaint   = "chaos.example.com/maintenance"
	widgetGroup = "chaos.example.com"
	widgets     = "widgets"
)

// workload is the user.
type workload struct {
	*rig
	draw *rand.Rand
	ops  []op
	pods int // made so far, for names
}

// op is an action of the user. It fails often, for instance during an outage.
type op struct {
	weight int
	do     func(context.Context)
}

func newWorkload(r *rig) *workload {
	w := &workload{rig: r, draw: r.newRandom("workload")}
	w.ops = []op{
		{10, w.deletePod(func(p *corev1.Pod) bool { return p.Namespace == steady && isActive(p) })},
		{4, w.deletePod(func(p *corev1.Pod) bool {
			return p.Namespace != steady && p.Namespace != rolling && p.DeletionTimestamp == nil
		})},
		{4, w.finishPod(steady)}, {2, w.finishPod(wild)}, {3, w.breakPod},
		{6, w.scaleSet}, {2, w.changeTemplate}, {2, w.makeSet}, {2, w.deleteSet},
		{3, w.releasePod}, {3, w.returnPod}, {3, w.makeOrphan}, {2, w.makeForeign},
		{1, w.setQuota}, {2, w.liftQuota}, {2, w.pinPod}, {2, w.unpinPods}, {1, w.setDeletionCost},
		{3, w.makeNamespace}, {3, func(ctx context.Context) { w.fillNamespace(ctx, w.drawNamespace()) }}, {3, w.deleteNamespace}, {3, w.unpinAll},
		{1, w.addType}, {1, w.removeType}, {2, w.makeWidget},
		{4, w.rollOut}, {2, w.scaleDeployment}, {2, w.pauseDeployment},
		{2, w.silenceNode}, {2, w.wakeNode}, {1, w.deleteNode}, {1, w.taintNode}, {2, w.untaintNodes}, {1, w.takeOutOfService},
	}
	return w
}

func (w *workload) createObjects(ctx context.Context) {
	for _, name := range []string{steady, wild, rolling} {
		must.Succeed(w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for i := range steadySets {
		w.createSet(ctx, steady, fmt.Sprintf("steady-%d", i), 2+w.draw.IntN(5))
	}
	for i := range wildSets {
		w.createSet(ctx, wild, fmt.Sprintf("wild-%d", i), w.draw.IntN(6))
	}
	must.Get(controlplane.StartKubelet(ctx, must.Get(kubernetes.NewForConfig(w.userConfig("chaos-user"))), rolling))
	for i := range rollingDeployments {
		must.Succeed(w.client.Create(ctx, controlplane.Deployment(rolling, fmt.Sprintf("rolling-%d", i), int32(3+w.draw.IntN(4)), func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge: new(intstr.FromInt32(rollingSurge)), MaxUnavailable: new(intstr.FromInt32(rollingUnavailable)),
			}
		})))
	}
}

func (w *workload) run(ctx context.Context) {
	total := 0
	for _, o := range w.ops {
		total += o.weight
	}
	for sleep(ctx, time.Duration(20+w.draw.IntN(200))*time.Millisecond) {
		n := w.draw.IntN(total)
		for _, o := range w.ops {
			if n -= o.weight; n < 0 {
				ctx, cancel := context.WithTimeout(ctx, opTimeout)
				_ = must.Catch(func() { o.do(ctx) })
				cancel()
				break
			}
		}
	}
}

// liftBlocks ends everything of the user that keeps the cluster from rest.
func (w *workload) liftBlocks(ctx context.Context) {
	must.Succeed(w.client.DeleteAllOf(ctx, &admissionv1.ValidatingWebhookConfiguration{}))
	w.liftQuota(ctx)
	w.unpinAll(ctx)
	w.untaintNodes(ctx)
	for i := range rollingDeployments {
		w.patchDeployment(ctx, fmt.Sprintf("rolling-%d", i), `{"spec":{"paused":false}}`)
	}
}

var errNoObject = errors.New("no such object")

// drawObject ends the op if no live object is accepted.
func drawObject[T metav1.Object](w *workload, h *history, accept func(T) bool) T {
	objects := liveObjects(h, accept)
	if len(objects) == 0 {
		must.Succeed(errNoObject)
	}
	return drawFrom(w.draw, objects...)
}

func (w *workload) drawPod(accept func(*corev1.Pod) bool) *corev1.Pod {
	return drawObject(w, w.histories.pods, accept)
}

func (w *workload) patch(ctx context.Context, o client.Object, patch string) {
	kind := types.StrategicMergePatchType
	must.Succeed(client.IgnoreNotFound(w.client.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(patch)))))
}

func (w *workload) createSet(ctx context.Context, namespace, name string, replicas int) {
	everywhere, seconds := w.draw.IntN(4) == 0, int64(1+w.draw.IntN(3))
	rs := controlplane.ReplicaSet(namespace, name, int32(replicas), func(rs *appsv1.ReplicaSet) {
		rs.Spec.MinReadySeconds = int32(w.draw.IntN(3))
		spec := &rs.Spec.Template.Spec
		spec.TerminationGracePeriodSeconds = new(int64(1))
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
	must.Succeed(w.client.Create(ctx, rs))
	w.note(keyOf(rs), "ReplicaSet created with %d replicas", replicas)
}

func (w *workload) deletePod(accept func(*corev1.Pod) bool) func(context.Context) {
	return func(ctx context.Context) {
		pod := w.drawPod(accept)
		var opts []client.DeleteOption
		if w.draw.IntN(3) == 0 {
			opts = append(opts, client.GracePeriodSeconds(0))
		}
		w.note(keyOf(pod), "pod deleted by the user")
		must.Succeed(w.client.Delete(ctx, pod, opts...))
	}
}

// finishPod ends a ready pod: a late status from the kubelet would revive another pod. Failed pods count as evicted,
// because many other failures delay creates for longer than the cluster may take to come to rest.
func (w *workload) finishPod(namespace string) func(context.Context) {
	return func(ctx context.Context) {
		pod := w.drawPod(func(p *corev1.Pod) bool { return p.Namespace == namespace && isActive(p) && kubelet.IsReady(p) }).DeepCopy()
		pod.Status.Phase, pod.Status.Conditions = drawFrom(w.draw, corev1.PodFailed, corev1.PodSucceeded), []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
		}}
		w.note(keyOf(pod), "pod has %s", pod.Status.Phase)
		must.Succeed(w.client.Status().Update(ctx, pod))
	}
}

// breakPod makes a pod not ready.
func (w *workload) breakPod(ctx context.Context) {
	pod := w.drawPod(func(p *corev1.Pod) bool { return p.Namespace == steady && isActive(p) && kubelet.IsReady(p) }).DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}}
	must.Succeed(w.client.Status().Update(ctx, pod))
}

func (w *workload) drawSet() *appsv1.ReplicaSet {
	return drawObject(w, w.histories.replicaSets, func(rs *appsv1.ReplicaSet) bool { return rs.Namespace == wild && rs.DeletionTimestamp == nil })
}

func (w *workload) scaleSet(ctx context.Context) {
	rs, n := w.drawSet(), w.draw.IntN(9)
	w.note(keyOf(rs), "scaled from %d to %d", *rs.Spec.Replicas, n)
	w.patch(ctx, rs, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
}

func (w *workload) changeTemplate(ctx context.Context) {
	rs := w.drawSet()
	w.note(keyOf(rs), "template changed")
	w.patch(ctx, rs, fmt.Sprintf(`{"spec":{"minReadySeconds":%d,"template":{"metadata":{"labels":{"round":"%d"}}}}}`, w.draw.IntN(3), w.draw.IntN(4)))
}

func (w *workload) makeSet(ctx context.Context) {
	w.createSet(ctx, wild, fmt.Sprintf("wild-%d", w.draw.IntN(wildSets+2)), w.draw.IntN(7))
}

func (w *workload) deleteSet(ctx context.Context) {
	rs := w.drawSet()
	how := drawFrom(w.draw, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
	w.note(keyOf(rs), "deleted, propagation %s", how)
	must.Succeed(w.client.Delete(ctx, rs, client.PropagationPolicy(how)))
}

// releasePod changes the labels so that the ReplicaSet has to let go.
func (w *workload) releasePod(ctx context.Context) {
	pod := w.drawPod(func(p *corev1.Pod) bool {
		return p.Namespace == wild && isActive(p) && metav1.GetControllerOf(p) != nil && p.Labels["app"] != ""
	})
	w.note(wild+"/"+pod.Labels["app"], "pod %s released", pod.Name)
	w.patch(ctx, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":null,%q:%q}}}`, detachedKey, pod.Labels["app"]))
}

func (w *workload) returnPod(ctx context.Context) {
	pod := w.drawPod(func(p *corev1.Pod) bool { return p.Namespace == wild && isActive(p) && p.Labels[detachedKey] != "" })
	app := pod.Labels[detachedKey]
	w.note(wild+"/"+app, "pod %s given back", pod.Name)
	w.patch(ctx, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":%q,%q:null}}}`, app, detachedKey))
}

// makeOrphan makes a pod that some ReplicaSet has to adopt.
func (w *workload) makeOrphan(ctx context.Context) { w.makePod(ctx, func(*corev1.Pod) {}) }

func (w *workload) makeForeign(ctx context.Context) {
	w.makePod(ctx, func(p *corev1.Pod) {
		p.Name = "foreign-" + p.Name
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "example.com/v1", Kind: "Sculptor", Name: "somebody", UID: "11111111-2222-3333-4444-555555555555", Controller: new(true),
		}}
	})
}

func (w *workload) makePod(ctx context.Context, edit func(*corev1.Pod)) {
	rs := w.drawSet()
	w.pods++
	pod := controlplane.Pod(wild, fmt.Sprintf("stray-%d", w.pods), rs.Spec.Selector.MatchLabels, edit, func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	w.note(keyOf(rs), "pod %s made by the user", pod.Name)
	must.Succeed(w.client.Create(ctx, pod))
}

func fewPods() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: wild, Name: "few-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}},
	}
}

func (w *workload) setQuota(ctx context.Context) {
	quota := fewPods()
	w.note("", "quota of 3 pods in %s", wild)
	must.Succeed(w.client.Create(ctx, quota))
	// There is no quota controller, and nothing is admitted without a status.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}
	must.Succeed(w.client.Status().Update(ctx, quota))
}

func (w *workload) liftQuota(ctx context.Context) {
	w.note("", "no quota in %s", wild)
	must.Succeed(client.IgnoreNotFound(w.client.Delete(ctx, fewPods())))
}

func (w *workload) pinPod(ctx context.Context) {
	pod := w.drawPod(func(p *corev1.Pod) bool {
		return p.Namespace != steady && p.Namespace != rolling && isActive(p) && len(p.Finalizers) == 0
	})
	w.note(keyOf(pod), "pod pinned and deleted")
	w.patch(ctx, pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
	must.Succeed(w.client.Delete(ctx, pod))
}

func (w *workload) unpinPods(ctx context.Context) {
	for _, pod := range liveObjects(w.histories.pods, func(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, finalizer) }) {
		w.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
	}
}

// unpinAll lets every pinned object go.
func (w *workload) unpinAll(ctx context.Context) {
	var maps corev1.ConfigMapList
	var secrets corev1.SecretList
	must.Succeed(w.client.List(ctx, &maps))
	must.Succeed(w.client.List(ctx, &secrets))
	var pinned []client.Object
	for i := range maps.Items {
		pinned = append(pinned, &maps.Items[i])
	}
	for i := range secrets.Items {
		pinned = append(pinned, &secrets.Items[i])
	}
	for _, o := range pinned {
		if slices.Contains(o.GetFinalizers(), finalizer) {
			w.patch(ctx, o, `{"metadata":{"finalizers":null}}`)
		}
	}
	w.unpinPods(ctx)
}

func (w *workload) setDeletionCost(ctx context.Context) {
	pod := w.drawPod(func(p *corev1.Pod) bool { return p.Namespace == wild && isActive(p) })
	w.patch(ctx, pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, corev1.PodDeletionCost, w.draw.IntN(100)-50))
}

func (w *workload) makeNamespace(ctx context.Context) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", passing, w.draw.IntN(passingMost))}}
	must.Succeed(w.client.Create(ctx, ns))
	w.note(ns.Name, "namespace created, uid %s", ns.UID)
	w.fillNamespace(ctx, ns.Name)
}

func (w *workload) drawNamespace() string {
	return drawObject(w, w.histories.namespaces, func(n *corev1.Namespace) bool {
		return strings.HasPrefix(n.Name, passing) && n.DeletionTimestamp == nil
	}).Name
}

func (w *workload) fillNamespace(ctx context.Context, namespace string) {
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "thing-"}
	if w.draw.IntN(3) == 0 {
		meta.Finalizers = []string{finalizer}
	}
	switch w.draw.IntN(4) {
	case 0:
		must.Succeed(w.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}))
	case 1:
		must.Succeed(w.client.Create(ctx, &corev1.Secret{ObjectMeta: meta}))
	case 2:
		must.Succeed(w.client.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: controlplane.Pod("", "", nil).Spec}))
	default:
		w.createSet(ctx, namespace, fmt.Sprintf("set-%d", w.draw.IntN(3)), 1+w.draw.IntN(4))
	}
}

func (w *workload) deleteNamespace(ctx context.Context) {
	name := w.drawNamespace()
	w.note(name, "namespace deleted by the user")
	must.Succeed(w.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func widgetType() *apiextensionsv1.CustomResourceDefinition {
	return controlplane.CustomType(widgetGroup, widgets, "Widget")
}

func (w *workload) addType(ctx context.Context) {
	w.note("", "type %s added", widgets)
	must.Succeed(w.client.Create(ctx, widgetType()))
}

func (w *workload) removeType(ctx context.Context) {
	w.note("", "type %s removed", widgets)
	must.Succeed(w.client.Delete(ctx, widgetType()))
}

func (w *workload) makeWidget(ctx context.Context) {
	must.Succeed(w.client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgetGroup + "/v1", "kind": "Widget", "metadata": map[string]any{"namespace": w.drawNamespace(), "generateName": "widget-"},
	}}))
}

func (w *workload) rollOut(ctx context.Context) {
	w.patchDeployment(ctx, w.drawDeployment(), fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, w.draw.IntN(templates)))
}

func (w *workload) pauseDeployment(ctx context.Context) {
	w.patchDeployment(ctx, w.drawDeployment(), fmt.Sprintf(`{"spec":{"paused":%t}}`, w.draw.IntN(3) == 0))
}

func (w *workload) scaleDeployment(ctx context.Context) {
	w.patchDeployment(ctx, fmt.Sprintf("rolling-%d", rollingDeployments-1), fmt.Sprintf(`{"spec":{"replicas":%d}}`, w.draw.IntN(8)))
}

func (w *workload) drawDeployment() string {
	return fmt.Sprintf("rolling-%d", w.draw.IntN(rollingDeployments))
}

func (w *workload) patchDeployment(ctx context.Context, name, patch string) {
	w.note(rolling+"/"+name, "patched with %s", patch)
	w.patch(ctx, controlplane.Deployment(rolling, name, 0), patch)
}

func (w *workload) drawKubelet(on bool) *nodeKubelet {
	kubelets := w.kubeletsThatAre(on)
	if len(kubelets) == 0 {
		must.Succeed(errNoObject)
	}
	return drawFrom(w.draw, kubelets...)
}

func (r *rig) kubeletsThatAre(on bool) []*nodeKubelet {
	return slices.DeleteFunc(slices.Clone(r.kubelets), func(k *nodeKubelet) bool { return k.isOn() != on })
}

func (w *workload) silenceNode(context.Context) {
	if len(w.kubeletsThatAre(false)) < deadNodes {
		k := w.drawKubelet(true)
		w.note(k.name, "kubelet goes silent")
		k.setOn(false)
	}
}

func (w *workload) wakeNode(context.Context) {
	k := w.drawKubelet(false)
	w.note(k.name, "kubelet comes back")
	k.setOn(true)
}

func (w *workload) deleteNode(ctx context.Context) {
	k := w.drawKubelet(false)
	w.note(k.name, "node deleted by the user")
	must.Succeed(w.client.Delete(ctx, controlplane.Node(k.name)))
}

func (w *workload) taintNode(ctx context.Context) {
	w.addTaint(ctx, drawFrom(w.draw, w.kubelets...).name, corev1.Taint{
		Key: userTaint, Effect: drawFrom(w.draw, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
	})
}

func (w *workload) takeOutOfService(ctx context.Context) {
	w.addTaint(ctx, w.drawKubelet(false).name, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
}

// addTaint replaces a taint of the same key.
func (w *workload) addTaint(ctx context.Context, name string, taint corev1.Taint) {
	w.note(name, "tainted %s by the user", taint.ToString())
	w.editTaints(ctx, name, func(taints []corev1.Taint) []corev1.Taint {
		return append(slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == taint.Key }), taint)
	})
}

func (w *workload) untaintNodes(ctx context.Context) {
	byUser := func(t corev1.Taint) bool { return t.Key == userTaint || t.Key == corev1.TaintNodeOutOfService }
	for _, node := range liveObjects(w.histories.nodes, func(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, byUser) }) {
		w.note(node.Name, "the user's taints removed")
		w.editTaints(ctx, node.Name, func(taints []corev1.Taint) []corev1.Taint { return slices.DeleteFunc(taints, byUser) })
	}
}

func (w *workload) editTaints(ctx context.Context, name string, edit func([]corev1.Taint) []corev1.Taint) {
	var node corev1.Node
	if err := w.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		must.Succeed(client.IgnoreNotFound(err))
		return
	}
	node.Spec.Taints = edit(node.Spec.Taints)
	must.Succeed(w.client.Update(ctx, &node))
}
