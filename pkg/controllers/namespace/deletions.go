package namespace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deletions remember when this process first saw each deletion. Unlike everything else they live longer than a term:
// handlers feed them on a standby too, which then need not wait for the grace again when it becomes leader.
type deletions struct {
	lock  sync.Mutex
	first map[types.UID]firstSeen
}

// firstSeen is when a deletion was seen first, and how.
type firstSeen struct {
	at time.Time
	// watched: the namespace was seen before without a deletionTimestamp, so the deletion is not older than the watch is late.
	watched bool
}

// note returns when the deletion of uid was seen first: now, if it was not seen before.
func (d *deletions) note(uid types.UID, s firstSeen) firstSeen {
	d.lock.Lock()
	defer d.lock.Unlock()
	if seen, ok := d.first[uid]; ok {
		return seen
	}
	if d.first == nil {
		d.first = map[types.UID]firstSeen{}
	}
	d.first[uid] = s
	return s
}

func (d *deletions) forget(uid types.UID) {
	d.lock.Lock()
	defer d.lock.Unlock()
	delete(d.first, uid)
}
