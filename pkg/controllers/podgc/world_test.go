package podgc

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
)

// epoch is the start time of every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster of fakes in a bubble of fake time.
type world struct {
	fakemanager.World
	pretended atomic.Pointer[pretended] // nil for the nodes of the client
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{World: fakemanager.World{Clientset: fakeapi.NewClientset(t, objects...), T: t}}
	w.PrependReactor("get", "nodes", w.getNode)
	t.Cleanup(func() {
		for _, r := range w.Requests("delete pods") {
			if p, g := r.Delete.Preconditions, r.Delete.GracePeriodSeconds; p == nil || p.UID == nil || g == nil || *g != 0 {
				t.Errorf("%s with preconditions %v and grace period %v, want a UID and 0", r.What, p, g)
			}
		}
	})
	return w
}

// deletes are the times at which pods were deleted first.
func (w *world) deletes() map[string]time.Duration { return w.Accepted("delete pods ") }

// manager starts caches, controller and a term. The returned function ends the term.
func (w *world) manager(threshold int) (c *Controller, stop func()) {
	w.T.Helper()
	cfg := DefaultConfig()
	cfg.TerminatedPodThreshold = threshold
	w.Registration = Registration(cfg)
	started, stop := w.Manager()
	return started.(*Controller), stop
}

// pretend sets the result of live reads of a node. Nil is "not found".
func (w *world) pretend(node *corev1.Node) {
	w.pretended.Store(&pretended{node})
}

// pretended is the result of a live read of a node.
type pretended struct{ node *corev1.Node }

func (w *world) getNode(action clienttesting.Action) (bool, runtime.Object, error) {
	p := w.pretended.Load()
	switch {
	case p == nil:
		return false, nil, nil
	case p.node == nil:
		return true, nil, apierrors.NewNotFound(corev1.Resource("nodes"), action.(clienttesting.GetAction).GetName())
	}
	return true, p.node, nil
}

func aNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

// aPod is a pod that was created an hour before the start of the bubble.
func aPod(name, node string, phase corev1.PodPhase, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 2, CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// terminating marks a pod as deleted with a grace period.
func terminating(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: epoch}, new(int64(30))
}

func finalized(pod *corev1.Pod) { pod.Finalizers = []string{"test.example.org/hold"} }

func TestMain(m *testing.M) { faket.Main(m) }
