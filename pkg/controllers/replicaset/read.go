package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
)

// reader reads ReplicaSets and pods, from the caches and live: as they are in etcd now.
type reader struct {
	client  kubernetes.Interface
	pods    *caches.Pods
	sets    *caches.ReplicaSets
	metrics *metrics
}

// cached returns the pass with its pods from the cache.
func (r *reader) cached(p pass) pass {
	p.ledger.reached(p.at.Of(r.pods.Resource()))
	pods := append(r.pods.ControlledBy(p.rs.UID), r.pods.Orphans(p.rs.Namespace)...)
	p.pods = p.ledger.withoutRemoved(pods, p.selects)
	r.resolve(p, func(name string) (*caches.Pod, bool) { return r.pods.Get(cache.NewObjectName(p.rs.Namespace, name)) }, time.Time{})
	return p
}

// live returns the pass with its ReplicaSet and its pods as they are now. reason is for the metric.
func (r *reader) live(ctx context.Context, p pass, reason string) (pass, error) {
	r.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := r.set(ctx, p.rs)
	if err != nil {
		return p, err
	}
	pods, version, err := r.pods.Read(ctx, r.client, rs.Namespace, metav1.ListOptions{LabelSelector: p.selector.String()})
	if err != nil {
		return p, fmt.Errorf("read the pods live: %w", err)
	}
	p.rs, p.pods = rs, pods
	p.ledger.readLive(r, rs, pods, version, p.now)
	r.resolve(p, byNameIn(pods), p.now)
	return p, nil
}

// resolve compares what is remembered with the pods that are there; see [ledger.resolve].
func (r *reader) resolve(p pass, byName func(string) (*caches.Pod, bool), live time.Time) {
	r.metrics.resolved(p.ledger.resolve(p.pods, byName, live))
	p.throttle.forget(p.pods)
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

// set reads a ReplicaSet live. If the one of its name is another by now the error is errReplaced.
func (r *reader) set(ctx context.Context, known *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	rs, err := r.client.AppsV1().ReplicaSets(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, fmt.Errorf("read the ReplicaSet live: %w", err)
	}
	if rs.UID != known.UID {
		return nil, errReplaced
	}
	rs.ManagedFields = nil
	return rs, nil
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
