package tainteviction

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
)

// epoch is the start time of every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster of fakes in a bubble of fake time.
type world struct {
	fakemanager.World
	record.EventRecorder        // only Eventf is called
	stop                 func() // ends the process

	lock   sync.Mutex
	events []string
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{World: fakemanager.World{Clientset: fakeapi.NewClientset(t, objects...), T: t}}
	w.Recorder = w
	t.Cleanup(func() {
		for _, r := range w.Requests("delete pods") {
			if p, g := r.Delete.Preconditions, r.Delete.GracePeriodSeconds; p == nil || p.UID == nil || g != nil {
				t.Errorf("%s with preconditions %v and grace period %v, want a UID and none", r.What, p, g)
			}
		}
	})
	return w
}

// deletes are the times at which pods were deleted first.
func (w *world) deletes() map[string]time.Duration { return w.Accepted("delete pods ") }

// manager starts a process: caches, controller and a term. The returned function ends the process.
func (w *world) manager(window time.Duration) (stop func()) {
	w.T.Helper()
	w.Registration = Registration(&window)
	_, stop = w.Manager()
	return stop
}

// standby starts caches and a controller without a term.
func (w *world) standby(window time.Duration) (c *Controller, stop func()) {
	w.T.Helper()
	w.Registration = Registration(&window)
	standby, stop := w.Standby()
	return standby.(*Controller), stop
}

// run begins a term. The returned function ends the term.
func (w *world) run(c *Controller) (end func()) { return fakeapi.Term(w.T, c.Run) }

// taint replaces the taints of node1.
func (w *world) taint(taints ...corev1.Taint) {
	w.T.Helper()
	w.node(func(n *corev1.Node) { n.Spec.Taints = taints })
}

func (w *world) node(edit func(*corev1.Node)) {
	w.T.Helper()
	node := w.Node("node1")
	edit(node)
	w.Put(node)
}

// Eventf implements record.EventRecorder.
func (w *world) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	ref := obj.(*corev1.ObjectReference)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s %s %s %s %s", ref.APIVersion, ref.Kind, ref.Namespace+"/"+ref.Name, ref.UID, kind, reason, fmt.Sprintf(format, args...)))
}

func (w *world) eventTexts() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.events
}

func marking(pod string) string {
	return fmt.Sprintf("v1 Pod default/%[1]s uid-%[1]s Normal TaintManagerEviction Marking for deletion Pod default/%[1]s", pod)
}

func cancelling(pod string) string {
	return fmt.Sprintf("v1 Pod default/%[1]s uid-%[1]s Normal TaintManagerEviction Cancelling deletion of Pod default/%[1]s", pod)
}

// node1 is the node of all pods here.
func node1(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "uid-node1"},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// aPod is a running pod that was created on node1 an hour before the start of the bubble.
func aPod(name string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 3, CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: "node1", Tolerations: tolerations},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// aNode is a Ready node1 with taints from the start of the bubble.
func aNode(taints ...string) *corev1.Node {
	node := node1(corev1.ConditionTrue)
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, agoTaint(key, 0))
	}
	return node
}

// nowTaint returns a taint that is added at this moment. agoTaint returns a taint that was added before the start of
// the bubble.
func nowTaint(key string) corev1.Taint { return agoTaint(key, -time.Since(epoch)) }

func agoTaint(key string, ago time.Duration) corev1.Taint {
	added := metav1.NewTime(epoch.Add(-ago))
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
}

func TestMain(m *testing.M) { faket.Main(m) }
