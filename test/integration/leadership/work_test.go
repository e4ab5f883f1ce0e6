package leadership

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

const replicas = 10

type workload struct {
	namespace string
	stop      func() // ends the deletions

	lock   sync.Mutex
	active map[string]*corev1.Pod // by name
}

// work deletes a pod after each pause and watches the promise that must hold all along: never more active pods than
// replicas.
func work(t *testing.T, pause time.Duration) *workload {
	t.Helper()
	w := &workload{namespace: here(t).Namespace(t)}
	here(t).Create(t, controlplane.ReplicaSet(w.namespace, "web", replicas))
	controlplane.ObservePods(t, here(t).Client(t), w.namespace, w.countActive)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	pods := here(t).Client(t).CoreV1().Pods(w.namespace)
	running.Go(func() { w.deletePods(ctx, pods, pause) })
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	return w
}

// deletePods deletes an active pod after each pause.
func (w *workload) deletePods(ctx context.Context, pods corev1client.PodInterface, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if name, ok := w.oldestPod(); ok {
			// The API server may be down. A delete without response can leave a terminating pod.
			cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			_ = pods.Delete(cut, name, metav1.DeleteOptions{})
			cancel()
		}
	}
}

// deleteAll deletes every pod at once.
func (w *workload) deleteAll(t *testing.T) {
	t.Helper()
	controlplane.Must(t, here(t).Client(t).CoreV1().Pods(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

func (w *workload) oldestPod() (name string, ok bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for other, pod := range w.active {
		if !ok || pod.CreationTimestamp.Before(&w.active[name].CreationTimestamp) {
			name, ok = other, true
		}
	}
	return name, ok
}

func (w *workload) countActive(now controlplane.Observed) (violation string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.active = map[string]*corev1.Pod{}
	for _, pod := range now.Pods {
		if caches.TrimPod(pod).IsActive() {
			w.active[pod.Name] = pod
		}
	}
	if n := len(w.active); n > replicas {
		return fmt.Sprintf("%d active pods, want at most %d,", n, replicas)
	}
	return ""
}

func (w *workload) settles(t *testing.T) {
	t.Helper()
	w.stop()
	controlplane.AwaitReplicas(t, here(t).Client(t), w.namespace, "web", replicas)
}
