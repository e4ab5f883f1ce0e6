// Package endpointslice tests the EndpointSlice controller on a real API server. Package
// minikcm/pkg/controllers/endpointslice tests lost responses, frozen watches and kills in fake time.
package endpointslice

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
	"minikcm/pkg/controllers/endpointslice"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// start runs the controller with the rights of deploy/rbac for this controller alone.
func start(t testing.TB, account string) *controlplane.Loop {
	t.Helper()
	config := endpointslice.DefaultConfig()
	config.MaxEndpoints = maxEndpoints
	return controlplane.StartLoop(t, controlplane.LoopOptions{Config: cluster.ManagerConfig(account, endpointslice.Name)}, endpointslice.Registration(config))
}

// maxEndpoints is small, so that few pods need several slices.
const maxEndpoints = 3

// world is one test's view of its namespace and its node.
type world struct {
	t      testing.TB
	ns     string
	client kubernetes.Interface
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, ns: cluster.Namespace(t), client: cluster.Client(t)}
	cluster.Create(t, controlplane.Node(w.ns))
	t.Cleanup(func() { _ = w.client.CoreV1().Nodes().Delete(context.Background(), w.ns, metav1.DeleteOptions{}) })
	return w
}

// service creates a headless Service that selects app=NAME.
func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	cluster.Create(w.t, service)
	return service
}

// pods creates ready pods of app=APP with the numbers from..to.
func (w *world) pods(app string, from, to int) {
	w.t.Helper()
	for i := from; i <= to; i++ {
		pod := controlplane.Pod(w.ns, fmt.Sprintf("%s-%d", app, i), map[string]string{"app": app}, func(p *corev1.Pod) {
			p.Spec.NodeName = w.ns
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		})
		cluster.Create(w.t, pod)
		controlplane.Must(w.t, kubelet.Post(w.t.Context(), w.client, pod, kubelet.Ready, "", ""))
	}
}

// slices lists the managed slices of a Service.
func (w *world) slices(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := w.client.DiscoveryV1().EndpointSlices(w.ns).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service + "," + discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io",
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// gets waits until the slices of a Service have the pods with the numbers from..to, each once.
func (w *world) gets(service string, from, to int) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		all, err := w.slices(ctx, service)
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, slice := range all {
			for _, e := range slice.Endpoints {
				seen[e.TargetRef.Name]++
			}
		}
		for i := from; i <= to; i++ {
			if name := fmt.Sprintf("%s-%d", service, i); seen[name] != 1 {
				return fmt.Errorf("pod %s is in %d slices of %d", name, seen[name], len(all))
			}
		}
		if want := to - from + 1; len(seen) != want {
			return fmt.Errorf("%d pods in slices, want %d: %v", len(seen), want, seen)
		}
		return nil
	})
}
