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
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const marker = "zebra"

// workload makes every controller send its requests.
type workload struct {
	name  string // of the namespace, and the beginning of most names
	steps []step
}

// step is done when do returns nil.
type step struct {
	what string
	do   func(context.Context) error
}

func startWorkload(t *testing.T, name string) *workload {
	t.Helper()
	w := &workload{name: fmt.Sprintf("%s-%s-%s", marker, name, rand.String(5))}
	namespace(t, w.name)
	w.addNodes(t)
	w.addReplicaSets(t)
	w.addDeployment(t)
	w.addPods(t)
	w.addService(t)
	w.addOwners(t)
	w.addNamespaces(t)
	return w
}

func (w *workload) then(what string, do func(context.Context) error) {
	w.steps = append(w.steps, step{what, do})
}

func (w *workload) wait(t *testing.T) {
	t.Helper()
	for _, s := range w.steps {
		controlplane.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
			if err := s.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
			return nil
		})
	}
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		must(t, admin.Create(t.Context(), o))
	}
}

func patch(ctx context.Context, o client.Object, format string, args ...any) error {
	return admin.Patch(ctx, o, client.RawPatch("application/strategic-merge-patch+json", fmt.Appendf(nil, format, args...)))
}

func (w *workload) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.name, Name: name}
}

// addNodes registers a node whose kubelet renews the lease, and another node.
func (w *workload) addNodes(t *testing.T) {
	t.Helper()
	kube, silent := cluster.Client(t), w.name+"-silent"
	for _, name := range []string{w.name + "-alive", silent} {
		node := controlplane.Node(name)
		create(t, node)
		controlplane.MarkNodeReady(t, kube, name)
		must(t, kubelet.CreateLease(t.Context(), kube, name, 40*time.Second))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), node) })
	}
	lease, err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), w.name+"-alive", metav1.GetOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			_ = kubelet.Renew(ctx, kube, lease) // repeated
			<-ticker.C
		}
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	w.then("the silent node is Unknown", func(ctx context.Context) error {
		var node corev1.Node
		if err := admin.Get(ctx, client.ObjectKey{Name: silent}, &node); err != nil {
			return err
		}
		if status := controlplane.NodeReady(&node); status != corev1.ConditionUnknown {
			return fmt.Errorf("status is %s", status)
		}
		return nil
	})
}

func (w *workload) addReplicaSets(t *testing.T) {
	t.Helper()
	create(t, controlplane.Pod(w.name, w.name+"-orphan", map[string]string{"app": w.name}), controlplane.ReplicaSet(w.name, w.name, 3))
	w.then("a ReplicaSet has three pods", func(ctx context.Context) error { return w.has(ctx, 3) })
	w.then("a ReplicaSet is scaled", func(ctx context.Context) error {
		return patch(ctx, controlplane.ReplicaSet(w.name, w.name, 0), `{"spec":{"replicas":1}}`)
	})
	w.then("a ReplicaSet has one pod", func(ctx context.Context) error { return w.has(ctx, 1) })

	strict := w.name + "-strict"
	namespace(t, strict)
	create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: strict, Name: w.name},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}, controlplane.ReplicaSet(strict, w.name, 1, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
	}))
	w.then("a rejected pod has one event that counts", func(ctx context.Context) error {
		var events corev1.EventList
		if err := admin.List(ctx, &events, client.InNamespace(strict)); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "FailedCreate" && e.Count > 1 }) {
			return fmt.Errorf("%d events, none counted up", len(events.Items))
		}
		return nil
	})
}

func (w *workload) has(ctx context.Context, n int32) error {
	var rs appsv1.ReplicaSet
	err := admin.Get(ctx, client.ObjectKey{Namespace: w.name, Name: w.name}, &rs)
	if err == nil && (rs.Status.Replicas != n || rs.Status.ObservedGeneration != rs.Generation) {
		err = fmt.Errorf("status is %+v, want %d replicas", rs.Status, n)
	}
	return err
}

func (w *workload) addPods(t *testing.T) {
	t.Helper()
	evicted := controlplane.Pod(w.name, w.name+"-evicted", nil, func(p *corev1.Pod) {
		p.Spec.NodeName = w.name + "-silent"
		p.Spec.Tolerations = []corev1.Toleration{{
			Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
		}}
	})
	onAlive := func(p *corev1.Pod) { p.Spec.NodeName = w.name + "-alive" }
	first, second := controlplane.Pod(w.name, w.name+"-finished-1", nil, onAlive), controlplane.Pod(w.name, w.name+"-finished-2", nil, onAlive)
	create(t, evicted, first, second)
	for pod, state := range map[*corev1.Pod]kubelet.State{evicted: kubelet.Ready, first: kubelet.Succeeded, second: kubelet.Succeeded} {
		must(t, kubelet.Post(t.Context(), cluster.Client(t), pod, state, "", ""))
	}
	w.then("the pod of the silent node is evicted", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKeyFromObject(evicted), evicted)
		if err == nil && evicted.DeletionTimestamp == nil {
			err = errors.New("pod is not being deleted")
		}
		return err
	})
	w.then("the silent node is out of service", func(ctx context.Context) error {
		return patch(ctx, controlplane.Node(w.name+"-silent"), `{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, corev1.TaintNodeOutOfService)
	})
	w.then("a finished pod and the evicted pod are collected", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(w.name)); err != nil {
			return err
		}
		left := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Name != evicted.Name && p.Status.Phase != corev1.PodSucceeded })
		if len(left) > 1 {
			return fmt.Errorf("%d are left, want one finished pod", len(left))
		}
		return nil
	})
}

// addOwners deletes owners with each propagation policy.
func (w *workload) addOwners(t *testing.T) {
	t.Helper()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		owner := &corev1.ConfigMap{ObjectMeta: w.meta(w.name + "-" + strings.ToLower(string(policy)))}
		create(t, owner)
		dependent := &corev1.ConfigMap{ObjectMeta: w.meta(owner.Name + "-dependent")}
		dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}}
		create(t, dependent)
		must(t, admin.Delete(t.Context(), owner, client.PropagationPolicy(policy)))
	}
	w.then("owners are gone, and their dependents but for the orphan", func(ctx context.Context) error {
		var list corev1.ConfigMapList
		err := admin.List(ctx, &list, client.InNamespace(w.name))
		if err == nil && (len(list.Items) != 1 || list.Items[0].Name != w.name+"-orphan-dependent" || len(list.Items[0].OwnerReferences) > 0) {
			err = fmt.Errorf("left are %v", list.Items)
		}
		return err
	})
}

// addNamespaces deletes a namespace that empties and another that waits for a finalizer.
func (w *workload) addNamespaces(t *testing.T) {
	t.Helper()
	for name, finalizers := range map[string][]string{w.name + "-empties": nil, w.name + "-stays": {"example.com/" + w.name}} {
		namespace(t, name)
		create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: w.name, Finalizers: finalizers}})
		must(t, admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	w.then("the namespace is empty and gone", func(ctx context.Context) error { return isGone(ctx, w.name+"-empties") })
}

func isGone(ctx context.Context, namespace string) error {
	err := admin.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	if err == nil {
		return errors.New("namespace exists")
	}
	return client.IgnoreNotFound(err)
}

// letGo removes the finalizer that holds the other namespace and waits for the end of the namespace.
func (w *workload) letGo(t *testing.T) {
	t.Helper()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.name + "-stays", Name: w.name}}
	must(t, patch(t.Context(), held, `{"metadata":{"finalizers":null}}`))
	controlplane.Eventually(t, time.Minute, func(ctx context.Context) error { return isGone(ctx, held.Namespace) })
}

// addDeployment makes a Deployment that adopts a ReplicaSet, is rolled out, and loses the history.
func (w *workload) addDeployment(t *testing.T) {
	t.Helper()
	d := controlplane.Deployment(w.name, "rolled", 0)
	create(t, controlplane.ReplicaSet(w.name, "orphan", 0, func(rs *appsv1.ReplicaSet) {
		rs.Labels, rs.Spec.Selector, rs.Spec.Template = d.Labels, d.Spec.Selector, *d.Spec.Template.DeepCopy()
		rs.Spec.Template.Spec.Containers[0].Image = "v0"
	}), d)
	for _, s := range []struct {
		what   string
		owned  int
		change func(*appsv1.Deployment)
	}{
		{"the Deployment has adopted one ReplicaSet and made one", 2, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" }},
		{"it is rolled out", 3, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) }},
		{"its history is gone", 1, func(*appsv1.Deployment) {}},
	} {
		w.then(s.what, func(ctx context.Context) error {
			var sets appsv1.ReplicaSetList
			if err := errors.Join(admin.Get(ctx, client.ObjectKeyFromObject(d), d), admin.List(ctx, &sets, client.InNamespace(w.name))); err != nil {
				return err
			}
			mine := slices.DeleteFunc(sets.Items, func(rs appsv1.ReplicaSet) bool { return !metav1.IsControlledBy(&rs, d) })
			if d.Status.ObservedGeneration != d.Generation || len(mine) != s.owned {
				return fmt.Errorf("generation %d of %d, %d ReplicaSets", d.Status.ObservedGeneration, d.Generation, len(mine))
			}
			s.change(d)
			return admin.Update(ctx, d)
		})
	}
}

// addService makes a Service whose slice gets its labels.
func (w *workload) addService(t *testing.T) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: w.meta(w.name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": w.name}}}
	create(t, service)
	hasSlice := func(labels client.MatchingLabels) func(context.Context) error {
		labels[discoveryv1.LabelServiceName] = w.name
		return func(ctx context.Context) error {
			var list discoveryv1.EndpointSliceList
			err := admin.List(ctx, &list, client.InNamespace(w.name), labels)
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d slices, want 1", len(list.Items))
			}
			return err
		}
	}
	w.then("a Service has a slice", hasSlice(client.MatchingLabels{}))
	w.then("a Service gets a label", func(ctx context.Context) error {
		return patch(ctx, service, `{"metadata":{"labels":{"a":"b"}}}`)
	})
	w.then("the slice gets the label", hasSlice(client.MatchingLabels{"a": "b"}))
}
