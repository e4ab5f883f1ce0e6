package leadership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/test/controlplane"
)

// replicas is what the ReplicaSet of a test asks for.
const replicas = 10

// workload is a ReplicaSet whose pods are deleted one after the other, so that a leader always has pods to create.
type workload struct {
	namespace string
	stop      func() // ends the deletions
}

// work starts the deletions and watches the promise that must hold all along: never more active pods than replicas. When the test ends,
// the promise is judged, and the ReplicaSet must have come to rest.
func work(t *testing.T) *workload {
	t.Helper()
	w := &workload{namespace: here(t).Namespace(t)}
	client := here(t).Client(t)
	if _, err := client.AppsV1().ReplicaSets(w.namespace).Create(t.Context(), controlplane.ReplicaSet(w.namespace, "web", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { w.deletePods(ctx, t) })
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	w.watchCount(t)
	return w
}

// deletePods deletes the oldest pod ten times a second.
func (w *workload) deletePods(ctx context.Context, t *testing.T) {
	pods := here(t).Client(t).CoreV1().Pods(w.namespace)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			continue // the API server may be away: that is some tests' point
		}
		oldest := list.Items[0]
		for _, p := range list.Items {
			if p.CreationTimestamp.Before(&oldest.CreationTimestamp) {
				oldest = p
			}
		}
		_ = pods.Delete(ctx, oldest.Name, metav1.DeleteOptions{})
	}
}

// watchCount counts the active pods on every event of a watch that begins with an empty namespace.
func (w *workload) watchCount(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		active, since := map[types.UID]bool{}, ""
		for ctx.Err() == nil {
			err := w.count(ctx, t, active, &since)
			if err != nil && ctx.Err() == nil && !errors.Is(err, errStreamEnded) {
				time.Sleep(100 * time.Millisecond) // the API server is away
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

var errStreamEnded = errors.New("watch ended")

func (w *workload) count(ctx context.Context, t *testing.T, active map[types.UID]bool, since *string) error {
	opts := metav1.ListOptions{ResourceVersion: *since, AllowWatchBookmarks: true}
	if *since == "" {
		opts.ResourceVersion = "0"
	}
	stream, err := here(t).Client(t).CoreV1().Pods(w.namespace).Watch(ctx, opts)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch: %v", event.Object)
		}
		*since = pod.ResourceVersion
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if event.Type == watch.Deleted || pod.DeletionTimestamp != nil || finished {
			delete(active, pod.UID)
		} else if event.Type != watch.Bookmark {
			active[pod.UID] = true
		}
		if len(active) > replicas {
			t.Errorf("%d active pods after %s of %s, the ReplicaSet asks for %d", len(active), event.Type, pod.Name, replicas)
		}
	}
	return errStreamEnded
}

// settles ends the deletions and waits until exactly the pods that are asked for are there.
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
		if rs.Status.Replicas != replicas || len(pods.Items) != replicas {
			return fmt.Errorf("%d pods and %d in the status, want %d", len(pods.Items), rs.Status.Replicas, replicas)
		}
		return nil
	})
}

// createdBy waits until a contender has created a pod after a moment, and returns how long after it that was.
func createdBy(t *testing.T, c *contender, after time.Time, timeout time.Duration) time.Duration {
	t.Helper()
	var took time.Duration
	controlplane.Eventually(t, timeout, func(context.Context) error {
		for _, w := range writes(t, c.user).Where(controlplane.ByResource("pods"), controlplane.ByVerb("create")) {
			if at := w.StageTimestamp.Time; at.After(after) {
				took = at.Sub(after)
				return nil
			}
		}
		return fmt.Errorf("%s has created no pod since %v", c.user, after.Format(time.StampMilli))
	})
	return took
}
