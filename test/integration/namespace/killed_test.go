package namespace_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/namespace"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func rights(user string) *rest.Config { return cluster.ManagerConfig(user, namespace.Name) }

func launch(t *testing.T, proxy *faults.Proxy, log string, args ...string) *controlplane.Process {
	t.Helper()
	p := controlplane.StartProcess(t, append([]string{"--kubeconfig=" + cluster.KubeconfigFor(t, proxy.Config()), "--controllers=namespace-controller",
		"--secure-port=0", "-v=2"}, args...)...)
	p.WaitForLog(t, log)
	return p
}

type death struct {
	name  string
	fault func(*faults.Gate) faults.Fault
	end   func(*faults.Held) // after the process has died
}

var deaths = []death{
	{"before it arrived", faults.Hold, (*faults.Held).Cut},
	{"before it was answered", faults.HoldAnswer, (*faults.Held).Cut},
	{"before it arrived, which it did in the end", faults.Hold, (*faults.Held).Release},
}

const killedAtOnce = 8

// TestKilledAtEveryRequest kills the process at each request for a namespace in one way, and at each write in all
// ways; another process takes over.
func TestKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	user := "killed-" + rand.String(5) // of this run alone
	proxy := faults.New(t, scoped(t, rights(user)))
	bystander := eventful(t)
	untouched := contentOf(t, bystander)
	k := &killer{proxy: proxy}
	k.manager = launch(t, proxy, "Controller started", killedFlags...)
	inTurn := func(n int) death { return deaths[n%2] }
	discoveries := k.every(t, aboutDiscovery, 1, inTurn)
	reads := k.every(t, about("get,list"), killedAtOnce, inTurn)
	writes := 0
	for _, d := range deaths {
		writes += k.every(t, about(faults.Writes), killedAtOnce, func(int) death { return d })
	}
	t.Logf("killed at each of %d requests of discovery, %d other reads and %d writes", discoveries, reads, writes)
	if discoveries < 2 || reads < 33 || writes < 5*len(deaths) {
		t.Errorf("%d requests of discovery, %d other reads and %d writes are too few for a deletion", discoveries, reads, writes)
	}
	if now := contentOf(t, bystander); !slices.Equal(now, untouched) {
		t.Errorf("a namespace that nobody deleted has\n%v\nand had\n%v", now, untouched)
	}
	elsewhere := cluster.AuditLog(t, controlplane.Received, controlplane.Writes, func(e *auditv1.Event) bool {
		return e.User.Username == controlplane.ServiceAccount(user) && !slices.Contains(k.victims, e.ObjectRef.Namespace) &&
			!slices.Contains(k.victims, e.ObjectRef.Name) && strings.HasPrefix(e.Verb, "delete")
	})
	if len(elsewhere) > 0 {
		t.Errorf("deleted elsewhere:\n%s", elsewhere)
	}
	remove(t, bystander)
	go letGo(t.Context(), t, bystander)
	gone(t, bystander, 20*time.Second)
}

type killer struct {
	proxy   *faults.Proxy
	manager *controlplane.Process
	victims []string // namespaces that were deleted
}

var killedFlags = []string{"--leader-elect=false", "--namespace-deletion-grace-period=0"}

// every kills the process at every request that matches, of so many namespaces together, and returns how many
// there were.
func (k *killer) every(t *testing.T, match func(ns string) faults.Match, together int, way func(n int) death) (hits int) {
	t.Helper()
	for n := 0; ; n += together {
		hit := k.kill(t, match, n, n+together, way)
		if hits += hit; hit < together {
			return hits
		}
	}
}

func (k *killer) kill(t *testing.T, match func(ns string) faults.Match, first, last int, way func(n int) death) (hits int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	count := last - first
	names, gates, held := make([]string, count), make([]*faults.Gate, count), make([]*faults.Held, count)
	var made sync.WaitGroup
	for i := range count {
		made.Go(func() { names[i], gates[i] = eventful(t), faults.NewGate() })
	}
	made.Wait()
	k.victims = append(k.victims, names...)
	for i, ns := range names {
		defer k.proxy.Inject(match(ns), way(first+i).fault(gates[i]), faults.After(first+i), faults.Next(1)).Remove()
	}
	for _, ns := range names {
		remove(t, ns)
		go letGo(ctx, t, ns)
	}
	for i, ns := range names {
		if held[i] = heldOrGone(t, gates[i], ns); held[i] != nil {
			hits++
		}
	}
	if hits == 0 {
		return 0
	}
	controlplane.Must(t, k.manager.Kill())
	for i, h := range held {
		if h != nil {
			way(first + i).end(h)
		}
	}
	k.manager = launch(t, k.proxy, "Controller started", killedFlags...)
	for i, ns := range names {
		gone(t, ns, 30*time.Second)
		if left := contentOf(t, ns); len(left) > 0 && held[i] != nil {
			t.Errorf("killed at request %d, %s %s, %s: left over %v", first+i, held[i].Request.Verb, held[i].Request.Path, way(first+i).name, left)
		}
	}
	return hits
}

func aboutDiscovery(string) faults.Match {
	return faults.Match{When: func(r *http.Request) bool { return r.URL.Path == "/api" || r.URL.Path == "/apis" }}
}

func about(verbs string) func(ns string) faults.Match {
	return func(ns string) faults.Match {
		return faults.Match{Verbs: verbs, When: func(r *http.Request) bool { return slices.Contains(strings.Split(r.URL.Path, "/"), ns) }}
	}
}

// heldOrGone returns the request that arrived at the gate, nil if the namespace is gone without.
func heldOrGone(t *testing.T, gate *faults.Gate, ns string) *faults.Held {
	t.Helper()
	var held *faults.Held
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		select {
		case held = <-gate.Held():
			return nil
		default:
			return isGone(ctx, cluster.Client(t), ns)
		}
	})
	return held
}

// A leader begins a deletion and dies; the standby process has seen the deletion, too, and does not wait for
// the grace once more.
func TestStandbyFinishesWhatTheLeaderBegan(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Second
	for name, end := range map[string]os.Signal{"asked to end": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			client := cluster.Client(t)
			flags := []string{"--namespace-deletion-grace-period=" + wait.String(),
				"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"}
			proxy := faults.New(t, scoped(t, rights("leader")))
			leader := launch(t, proxy, "Controller started", flags...)
			standby := launch(t, faults.New(t, scoped(t, rights("standby")), faults.WithName("standby")), "Standing by for another holder", flags...)
			ns := create(t)
			cluster.Create(t, controlplane.Pod(ns, "pod", nil, func(p *corev1.Pod) { p.Spec.NodeName = "no-such-node" }), configMap(ns, "config"))
			begin := time.Now()
			remove(t, ns)
			controlplane.Eventually(t, wait, func(ctx context.Context) error {
				p, err := client.CoreV1().Pods(ns).Get(ctx, "pod", metav1.GetOptions{})
				if err == nil && p.DeletionTimestamp == nil {
					err = fmt.Errorf("the leader has not begun")
				}
				if since := time.Since(begin); err == nil && since < wait/2 {
					err = fmt.Errorf("only %v of the grace have passed", since)
				}
				return err
			})
			controlplane.Must(t, leader.Signal(end))
			// The kubelet removes a pod whose containers have ended.
			controlplane.Must(t, client.CoreV1().Pods(ns).Delete(t.Context(), "pod", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			gone(t, ns, 30*time.Second)
			if took := time.Since(begin); took < wait {
				t.Errorf("gone after %v with a grace of %v", took, wait)
			}
			if left := contentOf(t, ns); len(left) > 0 {
				t.Errorf("left over %v", left)
			}
			controlplane.Must(t, leader.Kill())
			controlplane.Must(t, standby.Kill())
			controlplane.Must(t, client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "controller-manager", metav1.DeleteOptions{}))
		})
	}
}

func eventful(t *testing.T) string {
	t.Helper()
	ns := create(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	cluster.Create(t, controlplane.Pod(ns, "pod", nil), configMap(ns, "a"), configMap(ns, "b"),
		&corev1.Secret{ObjectMeta: meta("a")}, &corev1.Secret{ObjectMeta: meta("b")}, &corev1.ServiceAccount{ObjectMeta: meta("a")},
		&corev1.Service{ObjectMeta: meta("a"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		controlplane.ReplicaSet(ns, "held", 0, func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{"example.com/hold"} }))
	return ns
}

func letGo(ctx context.Context, t *testing.T, ns string) {
	client := cluster.Client(t)
	for ctx.Err() == nil {
		rs, err := client.AppsV1().ReplicaSets(ns).Get(ctx, "held", metav1.GetOptions{})
		if err == nil && rs.DeletionTimestamp != nil {
			_, err = client.AppsV1().ReplicaSets(ns).Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
