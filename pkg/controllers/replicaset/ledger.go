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

// ledger is what this process wrote for one ReplicaSet in this term, as far as the caches may not show it or the API server has not answered.
type ledger struct {
	barrier    controller.ConsistencyBarrier
	creates    controller.Creates             // pods that are to be created, and may have been
	deleted    map[types.UID]bool             // pods deleted for certain, though the cache may show them; true: they take their time to end
	unanswered map[types.UID]unansweredDelete // pods deleted perhaps
}

// unansweredDelete is a delete that was sent and not answered.
type unansweredDelete struct {
	version string    // of the pod, the precondition: once the pod has another one the delete cannot be carried out
	until   time.Time // by then it has been carried out or never will be
}

func newLedger() ledger {
	return ledger{deleted: map[types.UID]bool{}, unanswered: map[types.UID]unansweredDelete{}}
}

// withoutRemoved returns cached pods without those that were gone at the last live read.
func (l *ledger) withoutRemoved(pods []*caches.Pod, selects func(*caches.Pod) bool) []*caches.Pod {
	return slices.DeleteFunc(pods, func(pod *caches.Pod) bool { return selects(pod) && l.barrier.DeletedBeforeList(pod) })
}

// resolve finds out what became of creates and deletes from the pods that are there. byName finds a pod of the namespace, whoever owns it. live is
// when the consistent read began that the pods are from; zero if they are from the cache.
func (l *ledger) resolve(uid types.UID, pods []*caches.Pod, byName func(name string) (*caches.Pod, bool), live time.Time) {
	l.creates.Resolve(func(name string) (found, ours bool) {
		pod, found := byName(name)
		return found, found && pod.ControllerUID() == uid
	})
	if len(l.deleted)+len(l.unanswered) == 0 {
		return
	}
	there := byUID(pods)
	gone := func(uid types.UID) bool { return there[uid] == nil || there[uid].DeletionTimestamp != nil }
	maps.DeleteFunc(l.deleted, func(uid types.UID, _ bool) bool { return gone(uid) })
	maps.DeleteFunc(l.unanswered, func(uid types.UID, d unansweredDelete) bool {
		return gone(uid) || rv.Newer(there[uid].ResourceVersion, d.version) || !live.Before(d.until)
	})
}

// decided returns the first moment at which a live read can tell what became of an unanswered delete; zero if there is none.
func (l *ledger) decided() (first time.Time) {
	for _, d := range l.unanswered {
		if first.IsZero() || d.until.Before(first) {
			first = d.until
		}
	}
	return first
}

func byUID(pods []*caches.Pod) map[types.UID]*caches.Pod {
	there := make(map[types.UID]*caches.Pod, len(pods))
	for _, pod := range pods {
		there[pod.UID] = pod
	}
	return there
}
