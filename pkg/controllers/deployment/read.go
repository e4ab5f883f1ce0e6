package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// reader reads Deployments, ReplicaSets and pods, from the caches and live: as they are in etcd now.
type reader struct {
	client      kubernetes.Interface
	deployments *caches.Deployments
	sets        *caches.ReplicaSets
	pods        *caches.Pods
	metrics     *metrics
}

// cached returns the task with its ReplicaSets from the cache.
func (r *reader) cached(t syncState) syncState {
	// Names before ReplicaSets: one that arrives between the reads is counted, and its name stays taken.
	byName := controller.LookUp(t.expectations.creates, func(name string) (*appsv1.ReplicaSet, bool) {
		return r.sets.Get(cache.NewObjectName(t.d.Namespace, name))
	})
	sets := r.sets.Claimable(t.d.Namespace, t.d.UID)
	r.resolve(t, sets, byName)
	t.sets = slices.DeleteFunc(sets, func(rs *appsv1.ReplicaSet) bool {
		return t.selects(rs) && t.expectations.barrier.DeletedBeforeList(rs)
	})
	return t
}

// live returns the task with its Deployment and its ReplicaSets as they are now. reason is for the metric.
func (r *reader) live(ctx context.Context, t syncState, reason string) (syncState, error) {
	r.metrics.liveReads.WithLabelValues(reason).Inc()
	d, err := r.deployment(ctx, t.d)
	if err != nil {
		return t, err
	}
	list, err := r.client.AppsV1().ReplicaSets(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("read the ReplicaSets live: %w", err)
	}
	t.d, t.sets, t.live = d, make([]*appsv1.ReplicaSet, len(list.Items)), true
	for i := range list.Items {
		t.sets[i] = &list.Items[i]
		t.sets[i].ManagedFields = nil
	}
	t.expectations.cacheIncomplete = false
	controller.RecordLiveRead(&t.expectations.barrier, r.deployments, d, r.sets, t.sets, list.ResourceVersion, t.now)
	r.resolve(t, t.sets, func(name string) (*appsv1.ReplicaSet, bool) {
		i := slices.IndexFunc(t.sets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == name })
		if i < 0 {
			return nil, false
		}
		return t.sets[i], true
	})
	return t, nil
}

// resolve compares what is remembered with the ReplicaSets that are there; see [ledger.resolve].
func (r *reader) resolve(t syncState, sets []*appsv1.ReplicaSet, byName func(string) (*appsv1.ReplicaSet, bool)) {
	t.expectations.resolveCreates(sets, byName, t.now)
	t.backoffs.keepOnly(sets)
}

func (r *reader) deploymentToAdopt(ctx context.Context, known *appsv1.Deployment) (*appsv1.Deployment, error) {
	r.metrics.liveReads.WithLabelValues(readAdopt).Inc()
	return r.deployment(ctx, known)
}

// deployment reads a Deployment live; see [live.Same].
func (r *reader) deployment(ctx context.Context, known *appsv1.Deployment) (*appsv1.Deployment, error) {
	return live.Same(ctx, known, r.client.AppsV1().Deployments(known.Namespace).Get)
}

// set reads one ReplicaSet live; nil if there is none. reason is for the metric.
func (r *reader) replicaSet(ctx context.Context, namespace, name, reason string) (*appsv1.ReplicaSet, error) {
	r.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := r.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ReplicaSet %s live: %w", name, err)
	}
	return rs, nil
}

// observed notes what ReplicaSets show, and returns them with what the cache shows of their pods.
func (r *reader) observe(t syncState, mine []*appsv1.ReplicaSet) []replicaSet {
	t.expectations.templates.keepOnly(mine)
	sets := make([]replicaSet, len(mine))
	for i, rs := range mine {
		current := t.expectations.templates.isCurrent(t.d, rs)
		t.expectations.recordStatus(rs)
		sets[i] = replicaSet{
			rs: rs, current: current, resizedAt: t.expectations.resizedAt[rs.UID], backoff: t.backoffs.rejectedResize(t.d, rs).remaining(t.now),
			statusUnreliable: t.expectations.statusUnreliable(rs), pods: countPods(r.pods.ControlledBy(rs.UID), rs.Spec.MinReadySeconds, t.now),
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
		if pod.DeletionTimestamp != nil || pod.Ready.Status != corev1.ConditionTrue {
			continue
		}
		c.ready++
		if minReadySeconds == 0 || !pod.Ready.Since.IsZero() && !pod.Ready.Since.Add(time.Duration(minReadySeconds)*time.Second).After(now) {
			c.available++
		}
	}
	return c
}
