package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// readCached returns the sync with the ReplicaSets of the cache.
func (c *Controller) readCached(t syncState) syncState {
	// Resolve names before the ReplicaSets are read: a ReplicaSet that arrives in between is counted twice, and not
	// missed.
	t.expectations.resolveCreates(func(name string) bool {
		_, exists := c.replicaSets.Get(cache.NewObjectName(t.d.Namespace, name))
		return exists
	}, time.Time{})
	sets := c.replicaSets.Claimable(t.d.Namespace, t.d.UID)
	t.memory.dropDeleted(sets)
	t.sets = slices.DeleteFunc(sets, func(rs *appsv1.ReplicaSet) bool {
		return t.expectations.barrier.DeletedBeforeList(rs) && t.selects(rs)
	})
	return t
}

// readLive returns the sync with the Deployment and the ReplicaSets of the API server.
func (c *Controller) readLive(ctx context.Context, t syncState) (syncState, error) {
	d, err := c.liveDeployment(ctx, t.d)
	if err != nil {
		return t, err
	}
	list, err := c.Client.AppsV1().ReplicaSets(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("list ReplicaSets: %w", err)
	}
	t.d, t.sets = d, make([]*appsv1.ReplicaSet, len(list.Items))
	for i := range list.Items {
		t.sets[i] = &list.Items[i]
	}
	controller.RecordLiveRead(&t.expectations.barrier, c.deployments, d, c.replicaSets, t.sets, list.ResourceVersion, t.now)
	t.expectations.resolveCreates(func(name string) bool {
		return slices.ContainsFunc(t.sets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == name })
	}, t.now)
	t.memory.dropDeleted(t.sets)
	return t, nil
}

func (c *Controller) liveDeployment(ctx context.Context, known *appsv1.Deployment) (*appsv1.Deployment, error) {
	return live.GetSame(ctx, known, c.Client.AppsV1().Deployments(known.Namespace).Get)
}

// readReplicaSet reads one ReplicaSet live, and returns nil if it does not exist.
func (c *Controller) readReplicaSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return live.Find(ctx, name, c.Client.AppsV1().ReplicaSets(namespace).Get)
}

// observe returns owned ReplicaSets with the state of this process and the counts of cached pods.
func (c *Controller) observe(t syncState, owned []*appsv1.ReplicaSet) []replicaSet {
	sets := make([]replicaSet, len(owned))
	for i, rs := range owned {
		current := t.memory.templates.isCurrent(t.d, rs)
		t.memory.recordStatus(rs)
		rejected := t.memory.rejectedChange(t.d, rs)
		sets[i] = replicaSet{
			rs: rs, current: current, resizedAt: t.memory.resizedAt[rs.UID], backoff: rejected.remaining(t.now), rejections: rejected.tries,
			statusUnreliable: !t.memory.reliableStatus[rs.UID], pods: countPods(c.pods.ControlledBy(rs.UID), rs.Spec.MinReadySeconds, t.now),
		}
	}
	return sets
}

func countPods(pods []*caches.Pod, minReadySeconds int32, now time.Time) (c podCounts) {
	for _, pod := range pods {
		if pod.IsFinished() {
			continue
		}
		c.unfinished++
		if pod.DeletionTimestamp != nil || !pod.IsReady() {
			continue
		}
		c.ready++
		if pod.IsAvailable(minReadySeconds, now) {
			c.available++
		}
	}
	return c
}
