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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
	"minikcm/test/must"
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
	controlplane.Must(t, a.Signal(syscall.SIGSTOP))
	leads(b)
	controlplane.Must(t, a.Signal(syscall.SIGCONT))
	a.WaitForLog(t, "Term ends")
	controlplane.Must(t, b.Signal(syscall.SIGTERM))
	leads(a)
	b.EndsWith(t, 0)
	judgeLease(t, a, b)
}

func startEverything(t *testing.T, name string, _ ...string) *contender {
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
	namespace := here(t).Namespace(t)
	admin, err := controlplane.NewClient(here(t).Config())
	controlplane.Must(t, err)
	here(t).Create(t, controlplane.Node("evicting", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := must.Catch(func() {
			for i := 0; ; i++ {
				workForEveryLoop(ctx, admin, namespace, fmt.Sprintf("%s-work-%d", namespace, i))
			}
		})
		if ctx.Err() == nil {
			t.Errorf("make work: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// workForEveryLoop waits for the end of its namespace: on a busy machine the work must not pile up.
func workForEveryLoop(ctx context.Context, admin client.Client, namespace, name string) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	owner := &corev1.ConfigMap{ObjectMeta: meta}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-dependent"}}
	doomed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, object := range []client.Object{
		controlplane.Deployment(namespace, name, 1),
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name}}},
		controlplane.Node(name),
		controlplane.Pod(namespace, name+"-evicted", nil, func(p *corev1.Pod) { p.Spec.NodeName = "evicting" }),
		owner, doomed,
	} {
		must.Succeed(admin.Create(ctx, object))
	}
	dependent.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID}}
	must.Succeed(admin.Create(ctx, dependent))
	must.Succeed(admin.Delete(ctx, owner))
	must.Succeed(admin.Delete(ctx, doomed))
	must.Poll(ctx, time.Second, func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(doomed), doomed)) })
}
