package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// readCached returns the task with the pods of the cache.
func (c *Controller) readCached(t task) task {
	// Look up names before pods: a pod that arrives between the two reads is counted, and its name stays
	// taken.
	byName := controller.LookUp(t.expectations.creates, func(name string) (*caches.Pod, bool) {
		return c.deps.Pods.Get(cache.NewObjectName(t.rs.Namespace, name))
	})
	t.pods = t.expectations.withoutDeleted(c.deps.Pods.Claimable(t.rs.Namespace, t.rs.UID), t.selects)
	c.updateExpectations(t, byName, time.Time{})
	return t
}

// readLive returns the task with its ReplicaSet and pods from the API server.
func (c *Controller) readLive(ctx context.Context, t task, reason string) (task, error) {
	c.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := c.liveReplicaSet(ctx, t.rs)
	if err != nil {
		return t, err
	}
	pods, version, err := c.deps.Pods.Read(ctx, c.deps.Client, rs.Namespace, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("read the pods live: %w", err)
	}
	t.rs, t.pods = rs, pods
	controller.RecordLiveRead(&t.expectations.barrier, c.deps.ReplicaSets, rs, c.deps.Pods, pods, version, t.now)
	c.updateExpectations(t, findByName(pods), t.now)
	return t, nil
}

func (c *Controller) updateExpectations(t task, byName func(string) (*caches.Pod, bool), live time.Time) {
	t.expectations.update(t.rs.UID, t.pods, byName, live)
}

func findByName(pods []*caches.Pod) func(string) (*caches.Pod, bool) {
	return func(name string) (*caches.Pod, bool) {
		for _, pod := range pods {
			if pod.Name == name {
				return pod, true
			}
		}
		return nil, false
	}
}

// liveReplicaSet reads a ReplicaSet from the API server; see [live.GetSame].
func (c *Controller) liveReplicaSet(ctx context.Context, known *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return live.GetSame(ctx, known, c.deps.Client.AppsV1().ReplicaSets(known.Namespace).Get)
}

// livePod reads one pod from the API server, or returns nil. It uses a list because the upstream role may
// not get pods.
func (c *Controller) livePod(ctx context.Context, namespace, name string) (*caches.Pod, error) {
	pods, _, err := c.deps.Pods.Read(ctx, c.deps.Client, namespace,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}
