package replicaset

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// expectations records writes for one ReplicaSet that the caches may not show yet, or whose outcome is
// unknown.
type expectations struct {
	barrier     controller.ConsistencyBarrier
	creates     controller.Creates
	deleted     map[types.UID]bool // deleted by this process; true if the pod stays for a while
	unconfirmed map[types.UID]unconfirmedDelete
}

// unconfirmedDelete is a delete with unknown outcome.
type unconfirmedDelete struct {
	version string    // precondition of the delete: a pod with another version can no longer be deleted by the request
	until   time.Time // the outcome is final by then
}

func newExpectations() expectations {
	return expectations{creates: controller.Creates{}, deleted: map[types.UID]bool{}, unconfirmed: map[types.UID]unconfirmedDelete{}}
}

// withoutUnlisted drops cached pods that the last live read did not return.
func (e *expectations) withoutUnlisted(pods []*caches.Pod, selects func(*caches.Pod) bool) []*caches.Pod {
	return slices.DeleteFunc(pods, func(pod *caches.Pod) bool { return e.barrier.DeletedBeforeList(pod) && selects(pod) })
}

// update removes expectations that the pods fulfil or contradict. live is the start of the consistent read that
// returned the pods, or zero if they are cached.
func (e *expectations) update(pods []*caches.Pod, live time.Time) {
	if len(e.deleted)+len(e.unconfirmed) == 0 {
		return
	}
	there := indexByUID(pods)
	gone := func(uid types.UID) bool { return there[uid] == nil || there[uid].DeletionTimestamp != nil }
	maps.DeleteFunc(e.deleted, func(uid types.UID, _ bool) bool { return gone(uid) })
	maps.DeleteFunc(e.unconfirmed, func(uid types.UID, d unconfirmedDelete) bool {
		return gone(uid) || rv.Newer(there[uid].ResourceVersion, d.version) || !live.Before(d.until)
	})
}

// confirmableAt returns the first time at which a live read can show the outcome of an unconfirmed delete,
// or zero if there is none.
func (e *expectations) confirmableAt() (first time.Time) {
	for _, d := range e.unconfirmed {
		if first.IsZero() || d.until.Before(first) {
			first = d.until
		}
	}
	return first
}

func indexByUID(pods []*caches.Pod) map[types.UID]*caches.Pod {
	there := make(map[types.UID]*caches.Pod, len(pods))
	for _, pod := range pods {
		there[pod.UID] = pod
	}
	return there
}
