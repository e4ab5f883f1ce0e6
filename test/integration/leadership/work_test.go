package leadership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

const replicas = 10

type workload struct {
	namespace string
	stop      func() // ends the deletions

	lock   sync.Mutex
	active []podID // oldest first
}

type podID struct {
	uid  types.UID
	name string
}

// work deletes a pod after each pause and watches the promise that must hold all along: never more active pods than
// replicas.
func work(t *testing.T, pause time.Duration) *workload {
	t.Helper()
	w := &workload{namespace: here(t).Namespace(t)}
	client := here(t).Client(t)
	if _, err := client.AppsV1().ReplicaSets(w.namespace).Create(t.Context(), controlplane.ReplicaSet(w.namespace, "web", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	pods := client.CoreV1().Pods(w.namespace)
	running.Go(func() { w.deletePods(ctx, pods, pause) })
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	w.followPods(t)
	return w
}

// deletePods deletes the oldest pod after each pause.
func (w *workload) deletePods(ctx context.Context, pods corev1client.PodInterface, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if oldest, ok := w.oldest(); ok {
			// The API server may be down. A delete without response can leave a terminating pod.
			cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			_ = pods.Delete(cut, oldest.name, metav1.DeleteOptions{})
			cancel()
		}
	}
}

// deleteAll deletes every pod at once.
func (w *workload) deleteAll(t *testing.T) {
	t.Helper()
	err := here(t).Client(t).CoreV1().Pods(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *workload) oldest() (podID, bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if len(w.active) == 0 {
		return podID{}, false
	}
	return w.active[0], true
}

// followPods counts the active pods on every event.
func (w *workload) followPods(t *testing.T) {
	t.Helper()
	source := cache.NewListWatchFromClient(here(t).Client(t).CoreV1().RESTClient(), "pods", w.namespace, fields.Everything())
	reflector := cache.NewReflector(source, &corev1.Pod{}, podCounter{t, w}, 0)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// podCounter fails the test if there are too many active pods.
type podCounter struct {
	t *testing.T
	*workload
}

func (c podCounter) Add(obj any) error    { return c.count(obj.(*corev1.Pod), false) }
func (c podCounter) Update(obj any) error { return c.count(obj.(*corev1.Pod), false) }
func (c podCounter) Delete(obj any) error { return c.count(obj.(*corev1.Pod), true) }
func (c podCounter) Resync() error        { return nil }

func (c podCounter) Replace(list []any, _ string) error {
	c.lock.Lock()
	c.active = nil
	c.lock.Unlock()
	for _, obj := range list {
		_ = c.Add(obj)
	}
	return nil
}

func (c podCounter) count(pod *corev1.Pod, deleted bool) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	at := slices.IndexFunc(c.active, func(p podID) bool { return p.uid == pod.UID })
	switch active := !deleted && caches.TrimPod(pod).IsActive(); {
	case !active && at >= 0:
		c.active = slices.Delete(c.active, at, at+1)
	case active && at < 0:
		c.active = append(c.active, podID{pod.UID, pod.Name})
	}
	if n := len(c.active); n > replicas {
		c.t.Errorf("%d active pods after a change of %s, want at most %d", n, pod.Name, replicas)
	}
	return nil
}

func (w *workload) settles(t *testing.T) {
	t.Helper()
	w.stop()
	client := here(t).Client(t)
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		rs, err := client.AppsV1().ReplicaSets(w.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		active := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if rs.Status.Replicas != replicas || len(active) != replicas {
			return fmt.Errorf("%d pods and %d in the status, want %d", len(active), rs.Status.Replicas, replicas)
		}
		return nil
	})
}
