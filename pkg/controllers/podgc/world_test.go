package podgc

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
)

// epoch is the start time of every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster of fakes in a bubble of fake time.
type world struct {
	fakemanager.World
	controller *Controller
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{World: fakemanager.World{Clientset: fakeapi.NewClientset(t, objects...), T: t}}
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
func (w *world) manager(threshold int) (stop func()) {
	w.T.Helper()
	cfg := DefaultConfig()
	cfg.TerminatedPodThreshold = threshold
	w.Registration = Registration(cfg)
	c, stop := w.Manager()
	w.controller = c.(*Controller)
	return stop
}

// putUnseen creates or replaces a node. The cache does not show this or any later change of nodes.
func (w *world) putUnseen(node *corev1.Node) {
	w.Freeze("nodes", true)
	w.Put(node)
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

// deleted marks a pod as deleted without grace and held by a finalizer.
func deleted(pod *corev1.Pod) {
	finalized(pod)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: epoch}, new(int64)
}

// second makes a pod another pod of the same name.
func second(pod *corev1.Pod) { pod.UID = "second" }

func TestMain(m *testing.M) { faket.Main(m) }
