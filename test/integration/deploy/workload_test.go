package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const marker = "zebra"

// workload makes every controller send requests.
type workload struct {
	name  string // of the namespace, and the beginning of most names
	steps []step
}

// step is done when do returns nil.
type step struct {
	what string
	do   func(context.Context) error
}

func startWorkload(t *testing.T) *workload {
	t.Helper()
	w := &workload{name: fmt.Sprintf("%s-%s", marker, rand.String(5))}
	namespace(t, w.name)
	w.addNodes(t)
	w.addDeployment(t)
	w.addPods(t)
	w.addOwner(t)
	w.addNamespaces(t)
	return w
}

func (w *workload) then(what string, do func(context.Context) error) {
	w.steps = append(w.steps, step{what, do})
}

// thenWaitFor adds a step that waits for a state of an object.
func (w *workload) thenWaitFor(what string, o client.Object, isDone func() bool) {
	w.then(what, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !isDone() {
			return fmt.Errorf("%s is not so far", client.ObjectKeyFromObject(o))
		}
		return nil
	})
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

func (w *workload) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.name, Name: name}
}

// addNodes registers a node whose kubelet renews the lease, and another node.
func (w *workload) addNodes(t *testing.T) {
	t.Helper()
	kube, silent := cluster.Client(t), controlplane.Node(w.name+"-silent")
	for _, node := range []*corev1.Node{controlplane.Node(w.name + "-alive"), silent} {
		cluster.Create(t, node)
		controlplane.Must(t, kubelet.PostReady(t.Context(), kube, node.Name))
		controlplane.Must(t, kubelet.CreateLease(t.Context(), kube, node.Name, 40*time.Second))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), node) })
	}
	lease, err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), w.name+"-alive", metav1.GetOptions{})
	controlplane.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var kubelets sync.WaitGroup
	kubelets.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) { _ = kubelet.Renew(ctx, kube, lease) }, 500*time.Millisecond)
	})
	t.Cleanup(func() { cancel(); kubelets.Wait() })
	w.thenWaitFor("the silent node is Unknown", silent, func() bool { return controlplane.NodeReady(silent) == corev1.ConditionUnknown })
}

// addDeployment makes a Deployment behind a Service.
func (w *workload) addDeployment(t *testing.T) {
	t.Helper()
	d := controlplane.Deployment(w.name, w.name, 3)
	cluster.Create(t, d, &corev1.Service{ObjectMeta: w.meta(w.name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: d.Labels}})
	w.thenWaitFor("the Deployment has three pods", d, func() bool { return d.Status.Replicas == 3 })
	w.then("the Service has a slice", func(ctx context.Context) error {
		var list discoveryv1.EndpointSliceList
		err := admin.List(ctx, &list, client.InNamespace(w.name), client.MatchingLabels{discoveryv1.LabelServiceName: w.name})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d slices, want 1", len(list.Items))
		}
		return err
	})
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
	cluster.Create(t, evicted, first, second)
	for pod, state := range map[*corev1.Pod]kubelet.State{evicted: kubelet.Ready, first: kubelet.Succeeded, second: kubelet.Succeeded} {
		controlplane.Must(t, kubelet.Post(t.Context(), cluster.Client(t), pod, state, "", ""))
	}
	w.thenWaitFor("the pod of the silent node is evicted", evicted, func() bool { return evicted.DeletionTimestamp != nil })
	w.then("a finished pod is collected", func(ctx context.Context) error {
		err := errors.Join(admin.Get(ctx, client.ObjectKeyFromObject(first), first), admin.Get(ctx, client.ObjectKeyFromObject(second), second))
		if err == nil {
			err = errors.New("both pods are left")
		}
		return client.IgnoreNotFound(err)
	})
}

// addOwner deletes an owner.
func (w *workload) addOwner(t *testing.T) {
	t.Helper()
	owner, dependent := &corev1.ConfigMap{ObjectMeta: w.meta(w.name + "-owner")}, &corev1.ConfigMap{ObjectMeta: w.meta(w.name + "-dependent")}
	cluster.Create(t, owner)
	dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	cluster.Create(t, dependent)
	controlplane.Must(t, admin.Delete(t.Context(), owner))
	w.then("the dependent is gone", func(ctx context.Context) error { return isGone(ctx, dependent) })
}

// addNamespaces deletes a namespace that empties and another that waits for a finalizer.
func (w *workload) addNamespaces(t *testing.T) {
	t.Helper()
	for name, finalizers := range map[string][]string{w.name + "-empties": nil, w.name + "-stays": {"example.com/" + w.name}} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cluster.Create(t, ns, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: w.name, Finalizers: finalizers}})
		controlplane.Must(t, admin.Delete(t.Context(), ns))
		if finalizers == nil {
			w.then("the namespace is empty and gone", func(ctx context.Context) error { return isGone(ctx, ns) })
		}
	}
}

func isGone(ctx context.Context, o client.Object) error {
	err := admin.Get(ctx, client.ObjectKeyFromObject(o), o)
	if err == nil {
		err = fmt.Errorf("%s exists", o.GetName())
	}
	return client.IgnoreNotFound(err)
}

// letGo removes the finalizer that holds the other namespace and waits for the end of the namespace.
func (w *workload) letGo(t *testing.T) {
	t.Helper()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.name + "-stays", Name: w.name}}
	controlplane.Must(t, admin.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	controlplane.Eventually(t, time.Minute, func(ctx context.Context) error {
		return isGone(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: held.Namespace}})
	})
}
