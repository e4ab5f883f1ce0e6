package deployment

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// expectations records the writes for one Deployment that the caches do not show yet, or whose outcome is unknown.
type expectations struct {
	barrier controller.ConsistencyBarrier

	creates        map[string]unknownCreate // by name
	unknownChanges map[types.UID]unknownChange
}

// unknownCreate is a create with an unknown outcome.
type unknownCreate struct {
	size  int       // replicas
	until time.Time // time after which the API server does not carry it out; zero for no create
}

// unknownChange is a change with an unknown outcome.
type unknownChange struct {
	change     change
	generation int64     // of the Deployment
	until      time.Time // time after which the API server does not carry it out
}

func newExpectations() expectations {
	return expectations{creates: map[string]unknownCreate{}, unknownChanges: map[types.UID]unknownChange{}}
}

// startCreate records that a create may have been sent until now, and returns the record of earlier attempts.
func (e *expectations) startCreate(name string, size int, now time.Time) (earlier unknownCreate) {
	earlier = e.creates[name]
	e.creates[name] = unknownCreate{max(earlier.size, size), now.Add(outcome.MaxCompletionDelay)}
	return earlier
}

// endCreate records that the latest attempt was not carried out. An earlier attempt may still be.
func (e *expectations) endCreate(name string, earlier unknownCreate) {
	if e.creates[name] = earlier; earlier.until.IsZero() {
		delete(e.creates, name)
	}
}

// resolveCreates forgets creates whose name exists, with any owner, and creates that were not carried out. readAt is
// the start of the sync whose live read returned the names. It is zero for cached names: a cache may lack a ReplicaSet.
func (e *expectations) resolveCreates(exists func(name string) bool, readAt time.Time) {
	maps.DeleteFunc(e.creates, func(name string, c unknownCreate) bool { return exists(name) || !readAt.Before(c.until) })
}

// pendingPods returns the pods of creates with an unknown outcome: for the ReplicaSet with a name, and for others.
func (e *expectations) pendingPods(name string) (present, others int) {
	for created, c := range e.creates {
		if created != name {
			others += c.size
		}
	}
	return e.creates[name].size, others
}

// nextDeadline returns the time until the outcome of the first unknown create is certain, or 0 if there is none.
func (e *expectations) nextDeadline(now time.Time) (in time.Duration) {
	for _, c := range e.creates {
		in = timing.MinPositive(in, max(c.until.Sub(now), controller.Immediately))
	}
	return in
}
