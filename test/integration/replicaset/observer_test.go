package replicaset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

// observer counts the active pods of a ReplicaSet.
type observer struct {
	*controlplane.Observer
	n           *namespace
	rs          *appsv1.ReplicaSet
	least, most int
	active      int
	known       map[types.UID]bool // pods that the ReplicaSet has had
}

// observe starts to follow. From now on there are never more than most active pods, and never fewer than least.
func (n *namespace) observe(rs *appsv1.ReplicaSet, least, most int) *observer {
	n.t.Helper()
	o := &observer{n: n, rs: rs, least: least, most: most, known: map[types.UID]bool{}}
	o.Observer = controlplane.ObservePods(n.t, n.client, n.name, func(now controlplane.Observed) string {
		o.active = 0
		for uid, pod := range now.Pods {
			if metav1.IsControlledBy(pod, rs) && caches.TrimPod(pod).IsActive() {
				o.active++
				o.known[uid] = true
			}
		}
		if o.active < o.least || o.active > o.most {
			return fmt.Sprintf("%d active pods, allowed are %d to %d,", o.active, o.least, o.most)
		}
		return ""
	})
	return o
}

func (o *observer) bounds(least, most int) {
	o.Change(func() { o.least, o.most = least, most })
}

func (o *observer) seen() (pods int) {
	o.Change(func() { pods = len(o.known) })
	return pods
}

func (o *observer) settledAt(want int) {
	o.n.t.Helper()
	o.n.settled(o.rs.Name)
	o.CatchUp()
	o.n.eventually(func(context.Context) (err error) {
		o.Change(func() {
			if o.active != want {
				err = fmt.Errorf("observer sees %d active pods, want %d", o.active, want)
			}
		})
		return err
	})
	o.bounds(want, want)
}
