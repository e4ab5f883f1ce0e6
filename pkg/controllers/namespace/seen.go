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
	first map[types.UID]time.Time
}

// note returns when the deletion of uid was first seen, which is now if it was not before.
func (o *observations) note(uid types.UID, now time.Time) time.Time {
	o.lock.Lock()
	defer o.lock.Unlock()
	if seen, ok := o.first[uid]; ok {
		return seen
	}
	if o.first == nil {
		o.first = map[types.UID]time.Time{}
	}
	o.first[uid] = now
	return now
}

func (o *observations) forget(uid types.UID) {
	o.lock.Lock()
	defer o.lock.Unlock()
	delete(o.first, uid)
}
