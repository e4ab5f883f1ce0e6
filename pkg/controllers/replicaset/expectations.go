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
	creates     creates
	deleted     map[types.UID]bool // by this process; true for pods that linger
	unconfirmed map[types.UID]unconfirmedDelete
}

// unconfirmedDelete is a delete with unknown outcome.
type unconfirmedDelete struct {
	version string    // precondition of the delete: a pod with another version can no longer be deleted by the request
	until   time.Time // the outcome is final by then
}

func newExpectations() expectations {
	return expectations{creates: creates{}, deleted: map[types.UID]bool{}, unconfirmed: map[types.UID]unconfirmedDelete{}}
}

// creates holds, by name, the creates that are not known to have succeeded. A create with unknown outcome is
// repeated under the same name, so all its attempts create at most one pod. A name is removed once any pod has it.
type creates map[string]attempt

// attempt is one attempt to create a pod.
type attempt struct {
	name    string
	unknown bool // an attempt with this name has an unknown outcome, so the pod may exist
}

// chooseNames returns n names: first names of earlier creates, unknown outcomes before rejected ones, then new
// names from draw that are not taken.
func (c creates) chooseNames(n int, draw func() string, taken func(name string) bool) []string {
	rank := map[bool]int{true: 0, false: 1}
	names := slices.Sorted(maps.Keys(c))
	slices.SortStableFunc(names, func(a, b string) int { return rank[c[a].unknown] - rank[c[b].unknown] })
	names = names[:min(n, len(names))]
	for len(names) < n {
		if name := draw(); !taken(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// start records that a create is about to be sent, and returns the earlier state of the name. The outcome is
// unknown until the caller stores another state or deletes the name.
func (c creates) start(name string) attempt {
	before := c[name]
	before.name = name
	c[name] = attempt{name, true}
	return before
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
