package namespace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// silencePause is how long an API that did not answer one namespace is left alone by all.
const silencePause = listTimeout

// silence knows which group versions take requests and do not answer. Each look at one takes a worker for as long as a request may
// take, and with many namespaces all workers for minutes; so only one waits for it at a time.
type silence struct {
	clock clock.PassiveClock

	lock  sync.Mutex
	until map[schema.GroupVersion]time.Time
}

func newSilence(clock clock.PassiveClock) *silence {
	return &silence{clock: clock, until: map[schema.GroupVersion]time.Time{}}
}

// of reports whether the group version is to be left alone. When the pause is over, the first who asks is to try, and the others wait for
// what it finds.
func (s *silence) of(gv schema.GroupVersion) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	until, silent := s.until[gv]
	if !silent {
		return false
	}
	now := s.clock.Now()
	if now.Before(until) {
		return true
	}
	s.until[gv] = now.Add(silencePause)
	return false
}

// note takes in whether the group version has answered.
func (s *silence) note(gv schema.GroupVersion, answered bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if answered {
		delete(s.until, gv)
		return
	}
	s.until[gv] = s.clock.Now().Add(silencePause)
}
