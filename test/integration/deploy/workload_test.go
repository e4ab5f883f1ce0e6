package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

const marker = "zebra"

type workload struct {
	client kubernetes.Interface
	name   string // of the namespace, and the beginning of every other name
	steps  []step
}

type step struct {
	what string
	done func(context.Context, *workload) error
}

func startWorkload(t *testing.T, name string) *workload {
	t.Helper()
	w := &workload{client: cluster.Client(t), name: fmt.Sprintf("%s-%s-%s", marker, name, rand.String(5))}
	namespace(t, w.name)
	w.nodes(t)
	w.replicaSets(t)
	w.deployments(t)
	w.pods(t)
	w.services(t)
	w.owned(t)
	w.doomed(t)
	return w
}

func (w *workload) expect(what string, done func(context.Context, *workload) error) {
	w.steps = append(w.steps, step{what, done})
}

// wait waits until all that was to happen has.
func (w *workload) wait(t *testing.T) {
	t.Helper()
	for _, s := range w.steps {
		controlplane.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
			if err := s.done(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
			return nil
		})
	}
}

func (w *workload) nodes(t *testing.T) {
	t.Helper()
	for _, name := range []string{w.name + "-alive", w.name + "-silent"} {
		_, err := w.client.CoreV1().Nodes().Create(t.Context(), controlplane.Node(name), metav1.CreateOptions{})
		must(t, err)
		controlplane.MarkNodeReady(t, w.client, name)
		t.Cleanup(func() { _ = w.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		heartbeats(ctx, w.client, w.name+"-alive")
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	w.expect("the silent node is Unknown", func(ctx context.Context, w *workload) error {
		node, err := w.client.CoreV1().Nodes().Get(ctx, w.name+"-silent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if controlplane.NodeReady(node) != corev1.ConditionUnknown {
			return errors.New("it is not")
		}
		return nil
	})
}

// heartbeats plays the kubelet of a node.
func heartbeats(ctx context.Context, client kubernetes.Interface, node string) {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		beat := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"leaseDurationSeconds":40,"renewTime":%q}}`, node, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
		_, _ = leases.Patch(ctx, node, "application/merge-patch+json", beat, metav1.PatchOptions{})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *workload) replicaSets(t *testing.T) {
	t.Helper()
	_, err := w.client.CoreV1().Pods(w.name).Create(t.Context(),
		controlplane.Pod(w.name, w.name+"-orphan", map[string]string{"app": w.name}), metav1.CreateOptions{})
	must(t, err)
	_, err = w.client.AppsV1().ReplicaSets(w.name).Create(t.Context(), controlplane.ReplicaSet(w.name, w.name, 3), metav1.CreateOptions{})
	must(t, err)
	w.expect("a ReplicaSet has three pods", func(ctx context.Context, w *workload) error { return w.has(ctx, 3) })
	w.expect("a ReplicaSet is scaled", func(ctx context.Context, w *workload) error {
		patch := []byte(`{"spec":{"replicas":1}}`)
		_, err := w.client.AppsV1().ReplicaSets(w.name).Patch(ctx, w.name, "application/merge-patch+json", patch, metav1.PatchOptions{})
		return err
	})
	w.expect("a ReplicaSet has one pod", func(ctx context.Context, w *workload) error { return w.has(ctx, 1) })

	strict := w.name + "-strict"
	namespace(t, strict)
	_, err = w.client.CoreV1().LimitRanges(strict).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
	tooSmall := func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
	}
	_, err = w.client.AppsV1().ReplicaSets(strict).Create(t.Context(), controlplane.ReplicaSet(strict, w.name, 1, tooSmall), metav1.CreateOptions{})
	must(t, err)
	w.expect("a refused pod is told twice in one event", func(ctx context.Context, w *workload) error {
		events, err := w.client.CoreV1().Events(strict).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "FailedCreate" && e.Count > 1 }) {
			return fmt.Errorf("%d events, none counted up", len(events.Items))
		}
		return nil
	})
}

func (w *workload) has(ctx context.Context, n int32) error {
	rs, err := w.client.AppsV1().ReplicaSets(w.name).Get(ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if rs.Status.Replicas != n || rs.Status.ObservedGeneration != rs.Generation {
		return fmt.Errorf("status is %+v, want %d replicas", rs.Status, n)
	}
	return nil
}

func (w *workload) pods(t *testing.T) {
	t.Helper()
	for name, edit := range map[string]func(*corev1.Pod){
		"evicted": func(p *corev1.Pod) {
			p.Spec.NodeName = w.name + "-silent"
			p.Spec.Tolerations = []corev1.Toleration{{
				Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
			}}
		},
		"finished-1": func(p *corev1.Pod) { p.Spec.NodeName = w.name + "-alive" },
		"finished-2": func(p *corev1.Pod) { p.Spec.NodeName = w.name + "-alive" },
	} {
		name = w.name + "-" + name
		_, err := w.client.CoreV1().Pods(w.name).Create(t.Context(), controlplane.Pod(w.name, name, nil, edit), metav1.CreateOptions{})
		must(t, err)
	}
	controlplane.MarkPodReady(t, w.client, w.name, w.name+"-evicted")
	controlplane.SetPodPhase(t, w.client, w.name, w.name+"-finished-1", corev1.PodSucceeded)
	controlplane.SetPodPhase(t, w.client, w.name, w.name+"-finished-2", corev1.PodSucceeded)
	w.expect("the pod of the silent node is evicted", func(ctx context.Context, w *workload) error {
		pod, err := w.client.CoreV1().Pods(w.name).Get(ctx, w.name+"-evicted", metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp != nil {
			return err
		}
		return errors.New("it is not")
	})
	w.expect("the silent node is out of service", func(ctx context.Context, w *workload) error {
		taint := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, corev1.TaintNodeOutOfService)
		_, err := w.client.CoreV1().Nodes().Patch(ctx, w.name+"-silent", types.StrategicMergePatchType, taint, metav1.PatchOptions{})
		return err
	})
	w.expect("a finished pod and the evicted one are collected", func(ctx context.Context, w *workload) error {
		pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := 0
		for _, p := range pods.Items {
			if p.Name == w.name+"-evicted" || p.Status.Phase == corev1.PodSucceeded {
				left++
			}
		}
		if left > 1 {
			return fmt.Errorf("%d are left, want one finished pod", left)
		}
		return nil
	})
}

func (w *workload) owned(t *testing.T) {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps(w.name)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		name := fmt.Sprintf("%s-%s", w.name, strings.ToLower(string(policy)))
		owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-dependent", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)},
		}}}, metav1.CreateOptions{})
		must(t, err)
		must(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
	}
	w.expect("owners are gone, and their dependents but for the orphan", func(ctx context.Context, w *workload) error {
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, m := range list.Items {
			left = append(left, m.Name)
			if m.Name == w.name+"-orphan-dependent" && len(m.OwnerReferences) > 0 {
				return fmt.Errorf("%s is no orphan: %v", m.Name, m.OwnerReferences)
			}
		}
		if !slices.Equal(left, []string{w.name + "-orphan-dependent"}) {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
}

func (w *workload) doomed(t *testing.T) {
	t.Helper()
	for name, finalizers := range map[string][]string{"empties": nil, "stays": {"example.com/" + w.name}} {
		name = w.name + "-" + name
		namespace(t, name)
		_, err := w.client.CoreV1().ConfigMaps(name).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: w.name, Finalizers: finalizers}}, metav1.CreateOptions{})
		must(t, err)
		must(t, w.client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	w.expect("the namespace is empty and gone", func(ctx context.Context, w *workload) error { return w.gone(ctx, w.name+"-empties") })
}

func (w *workload) gone(ctx context.Context, namespace string) error {
	_, err := w.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is still there")
	}
	return err
}

// letGo removes the finalizer that holds the other namespace and waits for that to be gone.
func (w *workload) letGo(t *testing.T) {
	t.Helper()
	stays := w.name + "-stays"
	_, err := w.client.CoreV1().ConfigMaps(stays).Patch(t.Context(), w.name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
	controlplane.Eventually(t, time.Minute, func(ctx context.Context) error { return w.gone(ctx, stays) })
}

func (w *workload) deployments(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app": "rolled"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}
	orphan := controlplane.ReplicaSet(w.name, "orphan", 0, func(rs *appsv1.ReplicaSet) {
		rs.Labels, rs.Spec.Selector.MatchLabels = labels, labels
		rs.Spec.Template = *template.DeepCopy()
		rs.Spec.Template.Spec.Containers[0].Image = "v0"
	})
	sets, deployments := w.client.AppsV1().ReplicaSets(w.name), w.client.AppsV1().Deployments(w.name)
	_, err := sets.Create(t.Context(), orphan, metav1.CreateOptions{})
	must(t, err)
	_, err = deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "rolled"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	then := func(what string, owned int, change func(*appsv1.Deployment)) {
		w.expect(what, func(ctx context.Context, w *workload) error {
			d, err := deployments.Get(ctx, "rolled", metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, err := sets.List(ctx, metav1.ListOptions{LabelSelector: "app=rolled"})
			if err != nil {
				return err
			}
			mine := slices.DeleteFunc(list.Items, func(rs appsv1.ReplicaSet) bool { return !metav1.IsControlledBy(&rs, d) })
			if d.Status.ObservedGeneration != d.Generation || len(mine) != owned {
				return fmt.Errorf("generation %d of %d, %d ReplicaSets", d.Status.ObservedGeneration, d.Generation, len(mine))
			}
			change(d)
			_, err = deployments.Update(ctx, d, metav1.UpdateOptions{})
			return err
		})
	}
	then("the Deployment has adopted one ReplicaSet and made one", 2, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" })
	then("it is rolled out", 3, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) })
	then("its history is gone", 1, func(*appsv1.Deployment) {})
}

// services makes a Service whose slice gets its labels.
func (w *workload) services(t *testing.T) {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": w.name}},
	}
	_, err := w.client.CoreV1().Services(w.name).Create(t.Context(), service, metav1.CreateOptions{})
	must(t, err)
	slice := func(label string) func(context.Context, *workload) error {
		return func(ctx context.Context, w *workload) error {
			list, err := w.client.DiscoveryV1().EndpointSlices(w.name).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + w.name + label})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d slices, want 1", len(list.Items))
			}
			return err
		}
	}
	w.expect("a Service has a slice", slice(""))
	w.expect("a Service gets a label", func(ctx context.Context, w *workload) error {
		_, err := w.client.CoreV1().Services(w.name).Patch(ctx, w.name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		return err
	})
	w.expect("the slice gets the label", slice(",a=b"))
}
