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

// reader reads ReplicaSets and pods from the caches and from the API server.
type reader struct {
	client  kubernetes.Interface
	pods    *caches.Pods
	sets    *caches.ReplicaSets
	metrics *metrics
}

// readCached returns the task with the pods of the cache.
func (r *reader) readCached(t task) task {
	// Look up names before pods: a pod that arrives between the two reads is counted, and its name stays
	// taken.
	byName := controller.LookUp(t.expectations.creates, func(name string) (*caches.Pod, bool) {
		return r.pods.Get(cache.NewObjectName(t.rs.Namespace, name))
	})
	t.pods = t.expectations.withoutDeleted(r.pods.Claimable(t.rs.Namespace, t.rs.UID), t.selects)
	r.updateExpectations(t, byName, time.Time{})
	return t
}

// readLive returns the task with its ReplicaSet and pods from the API server.
func (r *reader) readLive(ctx context.Context, t task, reason string) (task, error) {
	r.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := r.liveReplicaSet(ctx, t.rs)
	if err != nil {
		return t, err
	}
	pods, version, err := r.pods.Read(ctx, r.client, rs.Namespace, metav1.ListOptions{LabelSelector: t.selector.String()})
	if err != nil {
		return t, fmt.Errorf("read the pods live: %w", err)
	}
	t.rs, t.pods = rs, pods
	controller.RecordLiveRead(&t.expectations.barrier, r.sets, rs, r.pods, pods, version, t.now)
	r.updateExpectations(t, findByName(pods), t.now)
	return t, nil
}

func (r *reader) updateExpectations(t task, byName func(string) (*caches.Pod, bool), live time.Time) {
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

// liveReplicaSet reads a ReplicaSet from the API server; see [live.Same].
func (r *reader) liveReplicaSet(ctx context.Context, known *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return live.Same(ctx, known, r.client.AppsV1().ReplicaSets(known.Namespace).Get)
}

// livePod reads one pod from the API server, or returns nil. It uses a list because the upstream role may
// not get pods.
func (r *reader) livePod(ctx context.Context, namespace, name string) (*caches.Pod, error) {
	pods, _, err := r.pods.Read(ctx, r.client, namespace,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return pods[0], nil
}
