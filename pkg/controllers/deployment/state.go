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
	backoffs     backoffs

	// Updated with KeyStates.Update. progressedAt is zero between rollouts.
	progressedAt time.Time
	minReady     time.Duration // a rollout may stand still for that long between two steps
}

func newState() *state {
	return &state{expectations: newExpectations(), backoffs: backoffs{rejectedChanges: map[types.UID]rejectedChange{}}}
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

// backoffs holds the retry state of one Deployment. It may be lost without wrong writes.
type backoffs struct {
	collisions   backoff // of the collisionCount
	modified     backoff // of creates of modifiedName, a ReplicaSet modified during admission
	modifiedName string

	ownership       ownership.State
	rejectedChanges map[types.UID]rejectedChange // by ReplicaSet

	statusAt time.Time // of the last status write
}

func (b *backoffs) dropDeleted(isDeleted func(types.UID) bool) {
	maps.DeleteFunc(b.rejectedChanges, func(uid types.UID, _ rejectedChange) bool { return isDeleted(uid) })
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

func (b *backoffs) rejectedChange(d *appsv1.Deployment, rs *appsv1.ReplicaSet) rejectedChange {
	r := b.rejectedChanges[rs.UID]
	if r.deployment != d.Generation || r.replicaSet != rs.Generation {
		return rejectedChange{}
	}
	return r
}

func (b *backoffs) changeRejected(d *appsv1.Deployment, rs *appsv1.ReplicaSet, now time.Time) {
	b.rejectedChanges[rs.UID] = rejectedChange{b.rejectedChange(d, rs).next(minRejected, maxRejected, now), d.Generation, rs.Generation}
}

// modifiedBackoff returns the back-off of creates of a name. Another template has another name.
func (b *backoffs) modifiedBackoff(name string) backoff {
	if b.modifiedName != name {
		return backoff{}
	}
	return b.modified
}
