package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/rv"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// ledger is what this process wrote for one ReplicaSet in this term, as far as the caches may not show it or the API server has not answered.
type ledger struct {
	uid types.UID

	barrier  controller.Barrier  // what the caches have to show before the next decision
	verified bool                // the first write of this term has been decided on a live read
	list     controller.Snapshot // the last live read, until the cache has reached it

	creates    controller.Creates             // pods that are to be created, and may have been
	deleted    map[types.UID]bool             // pods deleted for certain, though the cache may show them; true: they take their time to end
	unanswered map[types.UID]unansweredDelete // pods deleted perhaps
}

// unansweredDelete is a delete that was sent and not answered.
type unansweredDelete struct {
	version string    // of the pod, the precondition: once the pod has another one the delete cannot be carried out
	until   time.Time // by then it has been carried out or never will be
}

func newLedger(uid types.UID) *ledger {
	return &ledger{uid: uid, deleted: map[types.UID]bool{}, unanswered: map[types.UID]unansweredDelete{}}
}

// readLive notes a consistent read: the ReplicaSet, and the pods it selects, as of a version. The caches have to come that far, with the pods of
// others too, which they may still show as ours.
func (l *ledger) readLive(from *reader, rs *appsv1.ReplicaSet, pods []*caches.Pod, version string, now time.Time) {
	l.verified = true
	l.barrier.ReadLive(from.pods, version, now)
	l.barrier.ReadLive(from.sets, rs.ResourceVersion, now)
	l.barrier.Require(from.sets, rs.ResourceVersion, now)
	l.list = controller.SnapshotOf(pods, version)
	for _, pod := range pods {
		l.barrier.Require(from.pods, pod.ResourceVersion, now)
	}
}

// withoutRemoved returns cached pods without those that were gone at the last live read: no newer than it, selected, and not in it.
func (l *ledger) withoutRemoved(pods []*caches.Pod, selects func(*caches.Pod) bool) []*caches.Pod {
	if !l.list.Taken() {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *caches.Pod) bool { return selects(pod) && l.list.Gone(pod) })
}

// lostAnswers counts writes whose answer was lost and whose fate has become known. undone are deletes that were not and will not be
// carried out.
type lostAnswers struct{ created, deleted, undone int }

// resolve finds out what became of creates and deletes from the pods that are there. byName finds a pod of the namespace, whoever owns it. live is
// when the consistent read began that the pods are from; zero if they are from the cache.
func (l *ledger) resolve(pods []*caches.Pod, byName func(name string) (*caches.Pod, bool), live time.Time) lostAnswers {
	found := lostAnswers{created: l.creates.Resolve(func(name string) (found, ours bool) {
		pod, found := byName(name)
		return found, found && pod.ControllerUID() == l.uid
	})}
	if len(l.deleted)+len(l.unanswered) == 0 {
		return found
	}
	there := byUID(pods)
	for uid := range l.deleted {
		if pod := there[uid]; pod == nil || pod.DeletionTimestamp != nil {
			delete(l.deleted, uid)
		}
	}
	for uid, d := range l.unanswered {
		switch pod := there[uid]; {
		case pod == nil || pod.DeletionTimestamp != nil:
			delete(l.unanswered, uid)
			found.deleted++
		case rv.Newer(pod.ResourceVersion, d.version) || !live.Before(d.until):
			delete(l.unanswered, uid)
			found.undone++
		}
	}
	return found
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
