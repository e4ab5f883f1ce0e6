package deployment

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

// observer checks the promises of a Deployment.
type observer struct {
	*controlplane.Observer
	n         *namespace
	d         *appsv1.Deployment
	least     int                // available pods
	most      int                // sum of the sizes
	exclusive bool               // only one ReplicaSet may have unfinished pods
	known     map[types.UID]bool // ReplicaSets that the Deployment has had
}

// observe starts to follow. From now on sizes add up to most at the most, and least pods are available at the least.
func (n *namespace) observe(d *appsv1.Deployment, least, most int) *observer {
	n.t.Helper()
	o := &observer{n: n, d: d, least: least, most: most, known: map[types.UID]bool{}, exclusive: d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType}
	o.Observer = controlplane.ObserveReplicaSets(n.t, n.client, n.name, func(now controlplane.Observed) string {
		if violation := o.judgeSizes(now); violation != "" {
			return violation
		}
		return o.judgePods(now)
	})
	return o
}

func (o *observer) judgeSizes(now controlplane.Observed) string {
	sum := 0
	var sets []*appsv1.ReplicaSet
	for uid, s := range now.ReplicaSets {
		if !metav1.IsControlledBy(s, o.d) {
			continue
		}
		o.known[uid] = true
		sum += int(*s.Spec.Replicas)
		for _, other := range sets {
			if equality.Semantic.DeepEqual(templateOf(s), templateOf(other)) {
				return fmt.Sprintf("%s and %s have the same template", s.Name, other.Name)
			}
		}
		sets = append(sets, s)
	}
	if sum > o.most {
		return fmt.Sprintf("sizes add up to %d, allowed are %d,", sum, o.most)
	}
	return ""
}

func (o *observer) judgePods(now controlplane.Observed) string {
	available, owners := 0, map[types.UID]bool{}
	for _, pod := range now.Pods {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || !o.known[owner.UID] || caches.TrimPod(pod).IsFinished() {
			continue
		}
		owners[owner.UID] = true
		if pod.DeletionTimestamp == nil && controlplane.IsPodReady(pod) &&
			time.Since(pod.Status.Conditions[0].LastTransitionTime.Time) >= time.Duration(o.d.Spec.MinReadySeconds)*time.Second {
			available++
		}
	}
	switch {
	case available < o.least:
		return fmt.Sprintf("%d pods are available, promised are %d,", available, o.least)
	case o.exclusive && len(owners) > 1:
		return fmt.Sprintf("pods of %d ReplicaSets run", len(owners))
	}
	return ""
}

func (o *observer) bounds(least, most int) {
	o.Change(func() { o.least, o.most = least, most })
}

func (o *observer) seen() (sets int) {
	o.Change(func() { sets = len(o.known) })
	return sets
}

func (o *observer) complete() (*appsv1.Deployment, *appsv1.ReplicaSet) {
	o.n.t.Helper()
	d, s := o.n.completeNamed(o.d.Name)
	o.CatchUp()
	o.Check()
	o.bounds(int(*d.Spec.Replicas), int(*d.Spec.Replicas))
	return d, s
}
