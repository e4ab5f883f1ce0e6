package deployment

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controllers/internal/ownership"
)

// throttle is what a Deployment does not try for the time being, or tries more slowly. Without it nothing wrong would be done, but too much.
type backoffs struct {
	collisions   backoff // between two bumps of the collisionCount
	modified     backoff // between two creates of modifiedName, whose ReplicaSets were modified during admission
	modifiedName string

	ownership       ownership.State
	rejectedResizes map[types.UID]rejectedResize // of changes that were refused, by ReplicaSet

	statusAt time.Time // when the status was last written
}

func newBackoffs() backoffs {
	return backoffs{rejectedResizes: map[types.UID]rejectedResize{}}
}

// forget drops what is known of ReplicaSets that are gone, and refusals of such as are to be tried again.
func (t *backoffs) keepOnly(sets []*appsv1.ReplicaSet) {
	if len(t.rejectedResizes) == 0 {
		return
	}
	there := make(map[types.UID]bool, len(sets))
	for _, rs := range sets {
		there[rs.UID] = true
	}
	maps.DeleteFunc(t.rejectedResizes, func(uid types.UID, _ rejectedResize) bool { return !there[uid] })
}

// Back-offs of names, of ReplicaSets that admission modifies, and of changes that were refused.
const (
	minCollision, maxCollision = time.Second, 5 * time.Minute
	minModified, maxModified   = 5 * time.Second, 5 * time.Minute
	minRefused, maxRefused     = 50 * time.Millisecond, 10 * time.Second
)

// doubling is a time to wait that doubles from one try to the next. Zero lets the first one pass.
type backoff struct {
	tries int
	until time.Time
}

func (b backoff) next(least, most time.Duration, now time.Time) backoff {
	return backoff{tries: b.tries + 1, until: now.Add(min(least<<min(b.tries, 20), most))}
}

// wait says how long to wait still; zero not at all.
func (b backoff) remaining(now time.Time) time.Duration { return max(b.until.Sub(now), 0) }

// refusedChange holds back changes of one ReplicaSet after one was refused. It is apart from the queue, so events neither bypass nor lengthen it. A change of
// either object ends it. Zero holds nothing back.
type rejectedResize struct {
	backoff
	of, to int64 // generations of the Deployment and of the ReplicaSet
}

// refused is what is known of changes of a ReplicaSet that were refused since it or the Deployment was another.
func (t *backoffs) rejectedResize(d *appsv1.Deployment, rs *appsv1.ReplicaSet) rejectedResize {
	r := t.rejectedResizes[rs.UID]
	if r.of != d.Generation || r.to != rs.Generation {
		return rejectedResize{}
	}
	return r
}

func (t *backoffs) resizeRejected(d *appsv1.Deployment, rs *appsv1.ReplicaSet, now time.Time) {
	t.rejectedResizes[rs.UID] = rejectedResize{t.rejectedResize(d, rs).next(minRefused, maxRefused, now), d.Generation, rs.Generation}
}

// modifiedNamed returns the back-off of a name, which follows from the template.
func (t *backoffs) modifiedBackoff(name string) backoff {
	if t.modifiedName != name {
		return backoff{}
	}
	return t.modified
}
