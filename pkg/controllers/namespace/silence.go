package namespace

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// silencePause is how long an API that did not answer is left alone.
const silencePause = minPatience

// silence knows which group versions take requests and do not answer. One namespace alone may hold more than its API can list in time: that
// is no concern of the others. When two have had no answer, and nobody has had one since, each pass takes a worker for as long as a
// request may take, and with many namespaces all workers for minutes; so only one waits for it at a time.
type silence struct {
	clock clock.PassiveClock

	lock sync.Mutex
	of   map[schema.GroupVersion]*silent
}

// silent is a group version that has not answered somebody.
type silent struct {
	namespaces map[string]time.Time // until when each that had no answer leaves it alone
	all        time.Time            // until when everybody does; zero: only those
}

func newSilence(clock clock.PassiveClock) *silence {
	return &silence{clock: clock, of: map[schema.GroupVersion]*silent{}}
}

// keeps reports whether the namespace is to leave the group version alone. When the pause of all is over, the first who asks is to try, and
// the others wait for what it finds.
func (s *silence) keeps(namespace string, gv schema.GroupVersion) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	quiet, ok := s.of[gv]
	if !ok {
		return false
	}
	now := s.clock.Now()
	if now.Before(quiet.namespaces[namespace]) || now.Before(quiet.all) {
		return true
	}
	if !quiet.all.IsZero() {
		quiet.all = now.Add(silencePause)
	}
	return false
}

// note takes in whether the group version has answered the namespace.
func (s *silence) note(namespace string, gv schema.GroupVersion, answered bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if answered {
		delete(s.of, gv)
		return
	}
	quiet, ok := s.of[gv]
	if !ok {
		quiet = &silent{namespaces: map[string]time.Time{}}
		s.of[gv] = quiet
	}
	now := s.clock.Now()
	maps.DeleteFunc(quiet.namespaces, func(_ string, until time.Time) bool { return now.Sub(until) > longRecheck }) // they are gone
	until := now.Add(silencePause)
	quiet.namespaces[namespace] = until
	if len(quiet.namespaces) > 1 {
		quiet.all = until
	}
}
