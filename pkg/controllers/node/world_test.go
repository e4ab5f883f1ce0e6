package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
	"minikcm/pkg/controller"
)

// bench is a controller on a fake API in a bubble of fake time.
type bench struct {
	fakemanager.World
	controller *Controller
	events     *record.FakeRecorder
	stopTerm   func()
}

var errOutage = apierrors.NewInternalError(errors.New("etcdserver: no leader"))

func defaults() Config { return *DefaultConfig() }

// inBubble runs a test in fake time. The objects exist before the caches start.
func inBubble(t *testing.T, cfg Config, objects []runtime.Object, run func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{events: record.NewFakeRecorder(10000)}
		b.World = fakemanager.World{Clientset: fakeapi.NewClientset(t), T: t, Recorder: b.events, Registration: Registration(&cfg)}
		for _, obj := range objects {
			b.create(obj)
		}
		b.Registration.New = func(base controller.Base) (controller.Controller, error) {
			return newController(cfg, base, b.Clientset, metadataOf(b.Clientset))
		}
		standby, stopCaches := b.Standby()
		b.controller = standby.(*Controller)
		run(b)
		b.endTerm()
		stopCaches()
	})
}

// metadataOf is a client that lists the metadata of nodes.
func metadataOf(api *fakeapi.Clientset) metadata.Interface {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		all, err := api.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return true, nil, err
		}
		list := &metav1.List{ListMeta: all.ListMeta}
		for i := range all.Items {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: all.Items[i].ObjectMeta}})
		}
		return true, list, nil
	})
	return client
}

// term starts a term.
func (b *bench) term() { b.stopTerm = fakeapi.Term(b.T, b.controller.Run) }

func (b *bench) endTerm() {
	if b.stopTerm != nil {
		b.stopTerm()
		b.stopTerm = nil
	}
	synctest.Wait()
}

// outage makes the API server unreachable until the next event or successful request.
func (b *bench) outage() {
	b.controller.api.lock.Lock()
	defer b.controller.api.lock.Unlock()
	b.controller.api.unreachable = true
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) create(obj runtime.Object) {
	b.T.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	fakeapi.NoError(b.T, err)
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	_, _, err = b.React(clienttesting.NewCreateAction(resource, obj.(metav1.Object).GetNamespace(), obj))
	fakeapi.NoError(b.T, err)
}

// renew renews Leases, as kubelets do.
func (b *bench) renew(names ...string) {
	b.T.Helper()
	for _, name := range names {
		b.renewAs(name, &metav1.MicroTime{Time: time.Now()})
	}
}

// renewAs writes the Lease of a kubelet with a chosen time.
func (b *bench) renewAs(name string, at *metav1.MicroTime) {
	b.T.Helper()
	leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := fakeapi.Must(leases.Get(b.T.Context(), name, metav1.GetOptions{}))
	lease.Spec.RenewTime = at
	fakeapi.Must(leases.Update(b.T.Context(), lease, metav1.UpdateOptions{}))
	synctest.Wait()
}

// leaseInterval is the interval in which kubelets renew Leases.
const leaseInterval = 10 * time.Second

// renewFor lets kubelets renew every 10 s for some time.
func (b *bench) renewFor(d time.Duration, names ...string) {
	b.T.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		b.renew(names...)
		b.pass(min(leaseInterval, time.Until(end)))
	}
}

// edit changes a node.
func (b *bench) edit(name string, change func(*corev1.Node)) {
	b.T.Helper()
	node := b.Node(name)
	change(node)
	fakeapi.Must(b.CoreV1().Nodes().Update(b.T.Context(), node, metav1.UpdateOptions{}))
	synctest.Wait()
}

// post posts a Ready condition, as kubelets do.
func (b *bench) post(name string, status corev1.ConditionStatus) {
	b.T.Helper()
	b.edit(name, func(node *corev1.Node) { setReady(node, status, time.Now()) })
}

// Objects.

func setReady(node *corev1.Node, status corev1.ConditionStatus, at time.Time) {
	c := readyCondition(node)
	if c == nil {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady})
		c = readyCondition(node)
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(at)
	}
	c.Status, c.LastHeartbeatTime, c.Reason, c.Message = status, metav1.NewTime(at), "Kubelet", "from the kubelet"
}

// aNode returns a node of a zone with a Ready status. An empty status means no condition.
func aNode(name, zone string, ready corev1.ConditionStatus, edits ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{},
		CreationTimestamp: metav1.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // a year before the bubble's clock starts
	}}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion] = zone, "region"
	}
	if ready != "" {
		setReady(node, ready, node.CreationTimestamp.Time)
	}
	for _, edit := range edits {
		edit(node)
	}
	return node
}

func aLease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, UID: types.UID("lease-" + name)},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// aPod returns a Ready pod on a node.
func aPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Up", Message: "and running"},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		}},
	}
}

func podReady(pod *corev1.Pod) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}

// taintsOf returns the taints of a node as key:effect, without the common prefix of the keys.
func taintsOf(node *corev1.Node) (taints []string) {
	for _, t := range node.Spec.Taints {
		taints = append(taints, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	return taints
}

const unreachableNoExecute = "unreachable:NoExecute"

// The taints of nodes that are not Ready and of nodes that are silent.
var (
	notReadyTaints = []string{"not-ready:NoSchedule", "not-ready:NoExecute"}
	silentTaints   = []string{"unreachable:NoSchedule", unreachableNoExecute}
)

// wantTaints checks all taints of a node.
func (b *bench) wantTaints(name string, want ...string) {
	b.T.Helper()
	fakeapi.WantEqual(b.T, fmt.Sprintf("taints of node %s after %v", name, time.Since(epoch)), taintsOf(b.Node(name)), want)
}

// wantReady checks the Ready status of nodes, wantPods that of pods.
func (b *bench) wantReady(want corev1.ConditionStatus, names ...string) {
	b.T.Helper()
	for _, name := range names {
		fakeapi.Want(b.T, fmt.Sprintf("Ready of node %s after %v", name, time.Since(epoch)), readiness(b.Node(name)), want)
	}
}

func (b *bench) wantPods(want corev1.ConditionStatus, names ...string) {
	b.T.Helper()
	for _, name := range names {
		fakeapi.Want(b.T, fmt.Sprintf("Ready of pod %s after %v", name, time.Since(epoch)), podReady(b.Pod(name)), want)
	}
}

func TestMain(m *testing.M) { faket.Main(m) }
