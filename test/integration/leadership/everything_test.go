package leadership

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

// everyLoop lists writes that each controller sends all the time: the end of the user agent, the verb and the
// resource.
var everyLoop = []string{
	"deployment-controller update deployments/status", "replicaset-controller create pods", "node-controller update nodes/status",
	"node-controller delete pods", "pod-garbage-collector delete pods", "namespace-controller update namespaces/finalize",
	"generic-garbage-collector delete configmaps", "endpointslice-controller create endpointslices",
}

// TestEveryControllerStopsWithItsTerm sends SIGSTOP to the leader, and SIGCONT while the standby leads. The standby
// then hands over.
func TestEveryControllerStopsWithItsTerm(t *testing.T) {
	startCluster(t)
	keepEveryLoopBusy(t)
	a, b := pair(t, startEverything)
	leads := func(c *contender) {
		t.Helper()
		since := time.Now()
		controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
			if idle := c.idleLoops(t, since); len(idle) > 0 {
				return fmt.Errorf("%s has sent no %q since %v", c.user, idle, since.Format(time.StampMilli))
			}
			return nil
		})
	}
	leads(a)
	a.signal(t, syscall.SIGSTOP)
	leads(b)
	a.signal(t, syscall.SIGCONT)
	a.WaitForLog(t, "Term ends")
	b.signal(t, syscall.SIGTERM)
	leads(a)
	b.endsWell(t)
	judgeLease(t, a, b)
}

func startEverything(t *testing.T, name string) *contender {
	t.Helper()
	return startAt(t, name, here(t).ManagerConfig(name), "--controllers=*", "--node-monitor-period=500ms", "--node-monitor-grace-period=2s",
		"--node-startup-grace-period=2s", "--namespace-deletion-grace-period=0")
}

func (c *contender) idleLoops(t *testing.T, since time.Time) (idle []string) {
	t.Helper()
	sent := here(t).AuditLogSince(t, since, controlplane.ByUser(c.user), controlplane.Completed, controlplane.Succeeded)
	for _, loop := range everyLoop {
		words := strings.Fields(loop)
		if len(sent.Select(controlplane.ByUserAgent("/"+words[0]), controlplane.ByVerb(words[1]), controlplane.ByResource(words[2]))) == 0 {
			idle = append(idle, loop)
		}
	}
	return idle
}

// keepEveryLoopBusy makes work for each controller until the test ends.
func keepEveryLoopBusy(t *testing.T) {
	t.Helper()
	namespace, client := here(t).Namespace(t), here(t).Client(t)
	evicting := controlplane.Node("evicting")
	evicting.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), evicting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := 0; ; {
			// The next round waits for the namespace of this round: on a busy machine the work must not pile up.
			_, err := client.CoreV1().Namespaces().Get(ctx, doomedName(namespace, i-1), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				err = workForEveryLoop(ctx, client, namespace, i)
				i++
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("make work: %v", err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func doomedName(namespace string, i int) string { return fmt.Sprintf("%s-work-%d", namespace, i) }

func workForEveryLoop(ctx context.Context, client kubernetes.Interface, namespace string, i int) error {
	name := fmt.Sprintf("work-%d", i)
	pods, maps, namespaces := client.CoreV1().Pods(namespace), client.CoreV1().ConfigMaps(namespace), client.CoreV1().Namespaces()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name}},
	}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-dependent"}}
	doomed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: doomedName(namespace, i)}}
	evicted := controlplane.Pod(namespace, name+"-evicted", nil, func(p *corev1.Pod) { p.Spec.NodeName = "evicting" })
	create, remove := metav1.CreateOptions{}, metav1.DeleteOptions{}
	for _, step := range []func() error{
		func() error {
			_, err := client.AppsV1().Deployments(namespace).Create(ctx, controlplane.Deployment(namespace, name, 1), create)
			return err
		},
		func() error {
			_, err := client.CoreV1().Services(namespace).Create(ctx, service, create)
			return err
		},
		func() (err error) { owner, err = maps.Create(ctx, owner, create); return err },
		func() error {
			dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID}}
			_, err := maps.Create(ctx, dependent, create)
			return err
		},
		func() error { return maps.Delete(ctx, name, remove) },
		func() error { _, err := namespaces.Create(ctx, doomed, create); return err },
		func() error { return namespaces.Delete(ctx, doomed.Name, remove) },
		func() error {
			_, err := client.CoreV1().Nodes().Create(ctx, controlplane.Node(name), create)
			return err
		},
		func() error { _, err := pods.Create(ctx, evicted, create); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
