package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

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
	cluster.Create(w.t, n)
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

func (w *world) pod(namespace, name, node string) *corev1.Pod {
	w.t.Helper()
	pod := controlplane.Pod(namespace, name, nil, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.SchedulerName = node, "none"
		// Two items with one merge key, as in upstream's TestPodGcForPodsWithDuplicatedFieldKeys.
		c := &p.Spec.Containers[0]
		c.Env = []corev1.EnvVar{{Name: "XYZ", Value: "1"}, {Name: "XYZ", Value: "2"}}
		c.Ports = []corev1.ContainerPort{{ContainerPort: 93, HostPort: 9376}, {ContainerPort: 93, HostPort: 9377}}
	})
	w.label(pod)
	cluster.Create(w.t, pod)
	return pod
}

// setTaints replaces the taints of a node.
func (w *world) setTaints(node string, taints ...corev1.Taint) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	controlplane.Must(w.t, err)
	_, err = w.client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	controlplane.Must(w.t, err)
}

// eventually polls a pod until check returns nil. check gets nil if no pod has the name.
func (w *world) eventually(namespace, name string, check func(*corev1.Pod) error) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		if err == nil {
			err = check(pod)
		}
		if err != nil {
			err = fmt.Errorf("pod %s: %w", name, err)
		}
		return err
	})
}

// isGone is a check that a pod does not exist.
func isGone(pod *corev1.Pod) error {
	if pod != nil {
		return errors.New("still exists")
	}
	return nil
}

// isLeaving is a check that a pod is being deleted or does not exist.
func isLeaving(pod *corev1.Pod) error {
	if pod != nil && pod.DeletionTimestamp == nil {
		return errors.New("not being deleted")
	}
	return nil
}

// fleet has nodes with kubelets that renew Leases.
type fleet struct {
	names  []string
	silent sync.Map // node name → true
}

// newFleet makes n Ready nodes in a zone.
func (w *world) newFleet(n int) *fleet {
	w.t.Helper()
	f := &fleet{}
	ctx, stop := context.WithCancel(context.Background())
	var kubelets sync.WaitGroup
	w.t.Cleanup(func() {
		stop()
		kubelets.Wait()
	})
	for i := range n {
		name := fmt.Sprintf("fleet-%s-%d", w.scope, i)
		f.names = append(f.names, name)
		w.create(controlplane.Node(name, func(n *corev1.Node) {
			n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelTopologyRegion] = "zone", "region"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}))
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())},
		}
		w.label(lease)
		cluster.Create(w.t, lease)
		leases := w.client.CoordinationV1().Leases(lease.Namespace)
		w.t.Cleanup(func() { _ = leases.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		kubelets.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if _, silent := f.silent.Load(name); !silent {
					_ = kubelet.Renew(ctx, w.client, lease) // repeated
				}
			}, renewEvery)
		})
	}
	return f
}

func (f *fleet) silence(names ...string) {
	for _, name := range names {
		f.silent.Store(name, true)
	}
}

// taints waits until a node has exactly these taints, as KEY:EFFECT.
func (w *world) taints(name string, want ...string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, taint := range n.Spec.Taints {
			got = append(got, taint.ToString())
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("node %s has taints %v, want %v", name, got, want)
		}
		return nil
	})
}
