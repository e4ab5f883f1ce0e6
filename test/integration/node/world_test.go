package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type world struct {
	t      testing.TB
	client kubernetes.Interface
	scope  string
	ns     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return &world{t, cluster.Client(t), rand.String(8), cluster.Namespace(t)}
}

// label adds the scope to an object.
func (w *world) label(o metav1.Object) {
	labels := map[string]string{controlplane.ScopeLabel: w.scope}
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
}

func (w *world) create(n *corev1.Node) {
	w.t.Helper()
	w.label(n)
	_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{})
	must(w.t, err)
	w.t.Cleanup(func() {
		err := w.client.CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Errorf("delete node: %v", err)
		}
	})
}

func (w *world) node(name string) string {
	w.t.Helper()
	name += "-" + w.scope
	w.create(controlplane.Node(name))
	return name
}

// pod makes a pod of the test's own namespace on a node.
func (w *world) pod(name, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	return w.podIn(w.ns, name, node, edits...)
}

func (w *world) podIn(namespace, name, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	pod := controlplane.Pod(namespace, name, nil, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.SchedulerName = node, "none"
	}}, edits...)...)
	w.label(pod)
	pod, err := w.client.CoreV1().Pods(namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	must(w.t, err)
	return pod
}

// setTaints replaces the taints of a node.
func (w *world) setTaints(node string, taints ...corev1.Taint) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	must(w.t, err)
	_, err = w.client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	must(w.t, err)
}

func (w *world) terminating(namespace, name string, phase corev1.PodPhase) (pod *corev1.Pod) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) (err error) {
		pod, err = w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (pod.DeletionTimestamp == nil || pod.Status.Phase != phase) {
			err = fmt.Errorf("pod %s has phase %s, deleted at %v", name, pod.Status.Phase, pod.DeletionTimestamp)
		}
		return err
	})
	return pod
}

// gone waits until a pod does not exist.
func (w *world) gone(namespace, name string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		if _, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s still exists: %v", name, err)
		}
		return nil
	})
}

// leaves waits until a pod is being deleted or does not exist.
func (w *world) leaves(namespace, name string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("pod %s is not being deleted", name)
		}
		return err
	})
}

// conditions makes node conditions from pairs of type and status.
func conditions(pairs ...string) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, corev1.NodeCondition{Type: corev1.NodeConditionType(pairs[i]), Status: corev1.ConditionStatus(pairs[i+1])})
	}
	return out
}

type fleet struct {
	world *world
	names []string

	lock    sync.Mutex
	silent  map[string]bool
	stopped chan struct{}
	done    sync.WaitGroup
}

// newFleet makes n Ready nodes in a zone.
func (w *world) newFleet(zone string, n int) *fleet {
	w.t.Helper()
	f := &fleet{world: w, silent: map[string]bool{}, stopped: make(chan struct{})}
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for i := range n {
		name := fmt.Sprintf("%s-%s-%d", zone, w.scope, i)
		f.names = append(f.names, name)
		w.create(controlplane.Node(name, func(n *corev1.Node) {
			n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelTopologyRegion] = zone, "region"
			n.Status.Conditions = conditions("Ready", "True")
		}))
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}
		w.label(lease)
		_, err := leases.Create(w.t.Context(), lease, metav1.CreateOptions{})
		must(w.t, err)
		w.t.Cleanup(func() { _ = leases.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	f.done.Go(f.renew)
	w.t.Cleanup(func() {
		close(f.stopped)
		f.done.Wait()
	})
	return f
}

// renew plays all kubelets of the fleet, some at a time.
func (f *fleet) renew() {
	const atOnce = 10
	var kubelets sync.WaitGroup
	for first := range min(atOnce, len(f.names)) {
		kubelets.Go(func() {
			select {
			case <-time.After(renewEvery * time.Duration(first) / atOnce):
			case <-f.stopped:
				return
			}
			ticker := time.NewTicker(renewEvery)
			defer ticker.Stop()
			for {
				for i := first; i < len(f.names); i += atOnce {
					f.renewOne(f.names[i])
				}
				select {
				case <-ticker.C:
				case <-f.stopped:
					return
				}
			}
		})
	}
	kubelets.Wait()
}

func (f *fleet) renewOne(name string) {
	if !f.isSilent(name) {
		f.renewNow(name)
	}
}

func (f *fleet) renewNow(name string) {
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := f.world.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		f.world.t.Logf("renew %s: %v", name, err)
	}
}

func (f *fleet) isSilent(name string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.silent[name]
}

func (f *fleet) silence(silent bool, names ...string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, name := range names {
		f.silent[name] = silent
	}
}

// pods makes pods on a node that are Running and Ready.
func (w *world) pods(on string, n int) []string {
	w.t.Helper()
	var names []string
	for i := range n {
		name := fmt.Sprintf("%s-pod-%d", on, i)
		w.pod(name, on)
		controlplane.MarkPodReady(w.t, w.client, w.ns, name)
		names = append(names, name)
	}
	return names
}

func (w *world) list(ctx context.Context) ([]corev1.Node, error) {
	list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: controlplane.ScopeLabel + "=" + w.scope})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// unknown names the nodes of a list that are Unknown.
func unknown(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		if controlplane.NodeReady(&nodes[i]) == corev1.ConditionUnknown {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// hasTaint compares key, value and effect.
func hasTaint(n *corev1.Node, want corev1.Taint) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == want.Key && t.Effect == want.Effect && t.Value == want.Value
	})
}

// taints waits until a node has all the taints.
func (w *world) taints(name string, want ...corev1.Taint) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, t := range want {
			if !hasTaint(n, t) {
				return fmt.Errorf("node %s has taints %v, want %v", name, n.Spec.Taints, t)
			}
		}
		return nil
	})
}

// notReady waits until every pod is not Ready.
func (w *world) notReady(names ...string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		for _, name := range names {
			pod, err := w.client.CoreV1().Pods(w.ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := caches.TrimPod(pod).Ready.Status; got != corev1.ConditionFalse {
				return fmt.Errorf("pod %s: Ready = %s, want False", name, got)
			}
		}
		return nil
	})
}
