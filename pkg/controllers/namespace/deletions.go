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
	first map[types.UID]time.Time
}

// note returns the time at which the deletion of uid was first seen. The default is now.
func (d *deletions) note(uid types.UID, now time.Time) time.Time {
	d.lock.Lock()
	defer d.lock.Unlock()
	if seen, ok := d.first[uid]; ok {
		return seen
	}
	if d.first == nil {
		d.first = map[types.UID]time.Time{}
	}
	d.first[uid] = now
	return now
}

func (d *deletions) forget(uid types.UID) {
	d.lock.Lock()
	defer d.lock.Unlock()
	delete(d.first, uid)
}
