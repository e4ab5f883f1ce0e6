package deployment

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/ownership"
)

type states = controller.KeyStates[cache.ObjectName, state]

// state is the state of one Deployment during a term.
type state struct {
	expectations expectations
	memory       memory

	// Updated with KeyStates.Update. progressedAt is zero between rollouts.
	progressedAt time.Time
	minReady     time.Duration // a rollout may stand still for that long between two steps
}

func newState() *state {
	return &state{expectations: newExpectations(), memory: newMemory()}
}

// record stores the progress of a rollout.
func (s *state) record(t syncState, finished, progressed bool) {
	switch {
	case finished:
		s.progressedAt = time.Time{}
	case progressed || s.progressedAt.IsZero():
		s.progressedAt = t.now
	}
	s.minReady = time.Duration(t.d.Spec.MinReadySeconds) * time.Second
}

// longestStalled returns the longest time without progress of any rollout beyond its minReadySeconds, or 0 between
// rollouts.
func longestStalled(all *states, now time.Time) (stalled time.Duration) {
	all.ForEach(func(s *state) {
		if !s.progressedAt.IsZero() {
			stalled = max(stalled, now.Sub(s.progressedAt)-s.minReady)
		}
	})
	return stalled
}

// memory holds results of earlier syncs of one Deployment. It may be lost without wrong writes.
type memory struct {
	collisions   backoff // of the collisionCount
	modified     backoff // of creates of modifiedName, a ReplicaSet modified during admission
	modifiedName string

	ownership       ownership.State
	rejectedChanges map[types.UID]rejectedChange // by ReplicaSet
	templates       templateMemo
	reliableStatus  map[types.UID]bool      // see recordStatus
	resizedAt       map[types.UID]time.Time // last successful resizes

	statusAt time.Time // of the last status write
}

func newMemory() memory {
	return memory{rejectedChanges: map[types.UID]rejectedChange{}, reliableStatus: map[types.UID]bool{}, resizedAt: map[types.UID]time.Time{}}
}

// dropDeleted forgets ReplicaSets that are not among sets.
func (m *memory) dropDeleted(sets []*appsv1.ReplicaSet) {
	uids := make(map[types.UID]bool, len(sets))
	for _, rs := range sets {
		uids[rs.UID] = true
	}
	isDeleted := func(uid types.UID) bool { return !uids[uid] }
	maps.DeleteFunc(m.rejectedChanges, func(uid types.UID, _ rejectedChange) bool { return isDeleted(uid) })
	maps.DeleteFunc(m.reliableStatus, func(uid types.UID, _ bool) bool { return isDeleted(uid) })
	maps.DeleteFunc(m.resizedAt, func(uid types.UID, _ time.Time) bool { return isDeleted(uid) })
	maps.DeleteFunc(m.templates.compared, func(uid types.UID, _ comparison) bool { return isDeleted(uid) })
}

// recordStatus records that the status of a ReplicaSet is reliable once it shows the present size: the ReplicaSet
// controller acts on another size only after its cache shows the deletes for the last one. settleChanges has resolved
// all changes with an unknown outcome.
func (m *memory) recordStatus(rs *appsv1.ReplicaSet) {
	if rs.Status.ObservedGeneration >= rs.Generation || rs.Generation <= 1 {
		m.reliableStatus[rs.UID] = true
	}
}

const (
	minCollision, maxCollision = time.Second, 5 * time.Minute
	minModified, maxModified   = 5 * time.Second, 5 * time.Minute
	minRejected, maxRejected   = 50 * time.Millisecond, 10 * time.Second
)

// backoff is a delay that doubles with each try. The zero value has no delay.
type backoff struct {
	tries int
	until time.Time
}

func (b backoff) next(least, most time.Duration, now time.Time) backoff {
	return backoff{tries: b.tries + 1, until: now.Add(min(least<<min(b.tries, 20), most))}
}

func (b backoff) remaining(now time.Time) time.Duration { return max(b.until.Sub(now), 0) }

// rejectedChange is the back-off of rejected changes of one ReplicaSet. It ends with a new generation of either object.
// Events do not bypass it.
type rejectedChange struct {
	backoff
	deployment, replicaSet int64 // generations
}

func (m *memory) rejectedChange(d *appsv1.Deployment, rs *appsv1.ReplicaSet) rejectedChange {
	r := m.rejectedChanges[rs.UID]
	if r.deployment != d.Generation || r.replicaSet != rs.Generation {
		return rejectedChange{}
	}
	return r
}

// modifiedBackoff returns the back-off of creates of a name. Another template has another name.
func (m *memory) modifiedBackoff(name string) backoff {
	if m.modifiedName != name {
		return backoff{}
	}
	return m.modified
}
