package leadership

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

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
	w.watchPods(t, pods)
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

// watchPods counts the active pods on every event of a watch that begins with an empty namespace.
func (w *workload) watchPods(t *testing.T, pods corev1client.PodInterface) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		since := "0"
		for ctx.Err() == nil {
			var err error
			since, err = w.watch(ctx, t, pods, since)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) { // the API server was restarted
				since = "0"
			}
			if err != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (w *workload) watch(ctx context.Context, t *testing.T, pods corev1client.PodInterface, since string) (string, error) {
	stream, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: since, AllowWatchBookmarks: true})
	if err != nil {
		return since, err
	}
	defer stream.Stop()
	if since == "0" {
		w.lock.Lock()
		w.active = nil
		w.lock.Unlock()
	}
	for event := range stream.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return since, apierrors.FromObject(event.Object)
		}
		since = pod.ResourceVersion
		if n := w.see(event.Type, pod); n > replicas {
			t.Errorf("%d active pods after %s of %s, the ReplicaSet asks for %d", n, event.Type, pod.Name, replicas)
		}
	}
	return since, nil
}

func (w *workload) see(event watch.EventType, pod *corev1.Pod) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	if event == watch.Bookmark {
		return len(w.active)
	}
	at := slices.IndexFunc(w.active, func(p podID) bool { return p.uid == pod.UID })
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch gone := event == watch.Deleted || pod.DeletionTimestamp != nil || finished; {
	case gone && at >= 0:
		w.active = slices.Delete(w.active, at, at+1)
	case !gone && at < 0:
		w.active = append(w.active, podID{pod.UID, pod.Name})
	}
	return len(w.active)
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
