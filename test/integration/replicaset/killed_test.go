package replicaset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/replicaset"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// startDaemon starts the manager without a lease, so that the next may work at once.
func startDaemon(t *testing.T, name string, flags ...string) (*controlplane.Process, *faults.Proxy) {
	t.Helper()
	proxy := faults.New(t, cluster.ManagerConfig("manager", replicaset.Name), faults.WithName(name))
	return controlplane.StartProcess(t, append(flags, "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()),
		"--controllers=replicaset-controller", "--leader-elect=false", "--secure-port=0", "-v=2")...), proxy
}

type deadlyWrite struct {
	name            string
	verbs, resource string
	writes          int
	from, to        int32 // replicas before and after act
	least, most     int   // active pods meanwhile
	pods            int   // that the ReplicaSet has had in the end
	act             func(*namespace, *appsv1.ReplicaSet)
	done            func(*testing.T, *namespace)
}

const released = "released"

var deadlyWrites = []deadlyWrite{
	{
		name: "create", verbs: "create", resource: "pods", writes: 4, from: 1, to: 5, least: 1, most: 5, pods: 5,
		act: func(n *namespace, _ *appsv1.ReplicaSet) { n.scale("rs", 5) },
	},
	{
		name: "delete", verbs: "delete", resource: "pods", writes: 3, from: 5, to: 2, least: 2, most: 5, pods: 5,
		act: func(n *namespace, _ *appsv1.ReplicaSet) { n.scale("rs", 2) },
	},
	{
		name: "adopt", verbs: "patch", resource: "pods", writes: 3, from: 4, to: 4, least: 1, most: 4, pods: 4,
		act: func(n *namespace, rs *appsv1.ReplicaSet) {
			for _, pod := range n.active(rs)[:3] {
				n.editPod(pod, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
			}
		},
	},
	{
		name: "release", verbs: "patch", resource: "pods", writes: 2, from: 4, to: 4, least: 2, most: 4, pods: 6,
		act: func(n *namespace, rs *appsv1.ReplicaSet) {
			for _, pod := range n.active(rs)[:2] {
				n.editPod(pod, func(pod *corev1.Pod) { pod.Labels["app"] = released })
			}
		},
		done: func(t *testing.T, n *namespace) {
			for _, pod := range n.pods("app=" + released) {
				if owner := metav1.GetControllerOf(&pod); owner != nil {
					t.Errorf("pod %s is still controlled by %s", pod.Name, owner.Name)
				}
			}
		},
	},
	{
		name: "status", verbs: "update", resource: "replicasets/status", writes: 1, from: 2, to: 3, least: 2, most: 3, pods: 3,
		act: func(n *namespace, _ *appsv1.ReplicaSet) { n.scale("rs", 3) },
	},
}

// TestKilledAtEachWrite kills the manager at each write, before the API server receives the write or before the
// manager receives the response, and starts another manager. One kill serves several namespaces.
func TestKilledAtEachWrite(t *testing.T) {
	for _, when := range []struct {
		name  string
		fault func(*faults.Gate) faults.Fault
	}{
		{"Committed", faults.HoldAnswer},
		{"Lost", faults.Hold},
	} {
		t.Run(when.name, func(t *testing.T) {
			// A worker for each sync that waits.
			first, proxy := startDaemon(t, "first", "--concurrent-replicaset-syncs=50")
			var victims []*victim
			for _, w := range deadlyWrites {
				for i := range w.writes {
					victims = append(victims, newVictim(t, w, i))
				}
			}
			for _, v := range victims {
				v.settledAt(int(v.write.from))
				v.bounds(v.write.least, v.write.most)
				gate := faults.NewGate()
				proxy.Inject(v.match(), when.fault(gate), faults.After(v.index), faults.Next(1))
				v.write.act(v.n, v.rs)
				v.held = gate.Next(t)
			}
			controlplane.Must(t, first.Kill())
			for _, v := range victims {
				v.held.Cut()
			}
			startDaemon(t, "second")
			for _, v := range victims {
				v.finish(t)
			}
		})
	}
}

type victim struct {
	*observer
	write deadlyWrite
	index int // of the write
	held  *faults.Held
}

func newVictim(t *testing.T, w deadlyWrite, index int) *victim {
	t.Helper()
	n := newNamespace(t)
	rs := n.apply(w.from)
	return &victim{observer: n.observe(rs, 0, int(w.from)), write: w, index: index}
}

func (v *victim) match() faults.Match {
	return faults.Match{Verbs: v.write.verbs, Resource: v.write.resource, Namespace: v.n.name}
}

// finish waits for the end and checks the pods.
func (v *victim) finish(t *testing.T) {
	t.Helper()
	v.settledAt(int(v.write.to))
	if v.seen() != v.write.pods {
		t.Errorf("%s %d: the ReplicaSet has had %d pods, want %d", v.write.name, v.index, v.seen(), v.write.pods)
	}
	if v.write.done != nil {
		v.write.done(t, v.n)
	}
}
