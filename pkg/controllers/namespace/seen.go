package namespace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// observations remember when this process first saw each deletion. Unlike everything else they live longer than a term:
// handlers feed them on a standby too, which then need not wait for the grace again when it becomes leader.
type observations struct {
	lock  sync.Mutex
	first map[types.UID]sighting
}

// sighting is the first sight of a deletion.
type sighting struct {
	at time.Time
	// watched: the namespace was seen before without a deletionTimestamp, so the deletion is not older than the watch is late.
	watched bool
}

// note returns the first sight of the deletion of uid, which is this one if there was none before.
func (o *observations) note(uid types.UID, s sighting) sighting {
	o.lock.Lock()
	defer o.lock.Unlock()
	if seen, ok := o.first[uid]; ok {
		return seen
	}
	if o.first == nil {
		o.first = map[types.UID]sighting{}
	}
	o.first[uid] = s
	return s
}

func (o *observations) forget(uid types.UID) {
	o.lock.Lock()
	defer o.lock.Unlock()
	delete(o.first, uid)
}
