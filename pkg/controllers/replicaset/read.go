package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// reader reads ReplicaSets and pods, from the caches and live: as they are in etcd now.
type reader struct {
	client  kubernetes.Interface
	pods    *caches.Pods
	sets    *caches.ReplicaSets
	metrics *metrics
}

// cached returns the task with its pods from the cache.
func (r *reader) cached(t task) task {
	// Names before pods: a pod that arrives between the reads is counted, and its name stays taken.
	byName := controller.LookUp(t.ledger.creates, func(name string) (*caches.Pod, bool) {
		return r.pods.Get(cache.NewObjectName(t.rs.Namespace, name))
	})
	t.pods = t.ledger.withoutRemoved(r.pods.Claimable(t.rs.Namespace, t.rs.UID), t.selects)
	r.resolve(t, byName, time.Time{})
	return t
}

// live returns the task with its ReplicaSet and its pods as they are now. reason is for the metric.
func (r *reader) live(ctx context.Context, t task, reason string) (task, error) {
	r.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := r.set(ctx, t.rs)
	if err != nil {
		return t, err
	}
	pods, version, err := r.pods.Read(ctx, r.client, rs.Namespace, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("read the pods live: %w", err)
	}
	t.rs, t.pods = rs, pods
	controller.RecordLiveRead(&t.ledger.barrier, r.sets, rs, r.pods, pods, version, t.now)
	r.resolve(t, byNameIn(pods), t.now)
	return t, nil
}

// resolve compares what is remembered with the pods that are there; see [ledger.resolve].
func (r *reader) resolve(t task, byName func(string) (*caches.Pod, bool), live time.Time) {
	t.ledger.resolve(t.rs.UID, t.pods, byName, live)
}

func byNameIn(pods []*caches.Pod) func(string) (*caches.Pod, bool) {
	return func(name string) (*caches.Pod, bool) {
		for _, pod := range pods {
			if pod.Name == name {
				return pod, true
			}
		}
		return nil, false
	}
}

// set reads a ReplicaSet live; see [live.Same].
func (r *reader) set(ctx context.Context, known *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return live.Same(ctx, known, r.client.AppsV1().ReplicaSets(known.Namespace).Get)
}

// pod reads one pod live; nil if there is none. It is a list, because ReplicaSet controllers are not allowed to get pods.
func (r *reader) pod(ctx context.Context, namespace, name string) (*caches.Pod, error) {
	pods, _, err := r.pods.Read(ctx, r.client, namespace,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}
