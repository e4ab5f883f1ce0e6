package replicaset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// readCached returns the input of the sync with the pods of the cache.
func (c *Controller) readCached(t syncState) syncState {
	// Look up names before pods: a pod that arrives between the two reads is counted, and its name stays
	// taken.
	maps.DeleteFunc(t.expectations.creates, func(name string, _ attempt) bool {
		_, found := c.pods.Get(cache.NewObjectName(t.rs.Namespace, name))
		return found
	})
	t.pods = t.expectations.withoutUnlisted(c.pods.Claimable(t.rs.Namespace, t.rs.UID), t.selects)
	t.expectations.update(t.pods, time.Time{})
	return t
}

// readLive returns the input of the sync with its ReplicaSet and pods from the API server.
func (c *Controller) readLive(ctx context.Context, t syncState) (syncState, error) {
	rs, err := c.liveReplicaSet(ctx, t.rs)
	if err != nil {
		return t, err
	}
	pods, version, err := c.pods.Read(ctx, c.Client, rs.Namespace, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("read the pods live: %w", err)
	}
	t.rs, t.pods = rs, pods
	controller.RecordLiveRead(&t.expectations.barrier, c.replicaSets, rs, c.pods, pods, version, t.now)
	maps.DeleteFunc(t.expectations.creates, func(name string, _ attempt) bool {
		return slices.ContainsFunc(pods, func(pod *caches.Pod) bool { return pod.Name == name })
	})
	t.expectations.update(pods, t.now)
	return t, nil
}

// liveReplicaSet reads a ReplicaSet from the API server; see [live.GetSame].
func (c *Controller) liveReplicaSet(ctx context.Context, known *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return live.GetSame(ctx, known, c.Client.AppsV1().ReplicaSets(known.Namespace).Get)
}
