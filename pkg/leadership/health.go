package leadership

import (
	"fmt"
	"net/http"
	"time"
)

// healthTolerance is how long a leader may be late before it counts as stuck.
const healthTolerance = 20 * time.Second // kube-controller-manager v1.37

// Name is the name of the health check, that of kube-controller-manager.
func (e *Elector) Name() string { return "leaderElection" }

// Check fails while this process believes it leads and its last renewal is older than the lease duration plus 20 s. It also fails
// while the controllers of a term that is over have not returned for longer than both that and the shutdown timeout. Without a shutdown
// timeout they may run as long as the lease is renewed. A standby passes. The API server has no part in it: an outage ends terms.
func (e *Elector) Check(*http.Request) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.lease == nil || !e.leading {
		return nil
	}
	return checkStuck(e.clock.Since(e.renewedAt), e.endedAt, e.clock.Now(), e.cfg)
}

// stuck judges a leader: renewed is the age of its last renewal, ended when its term was found to be over,
// zero while it is not.
func checkStuck(renewed time.Duration, ended, now time.Time, cfg Config) error {
	limit := cfg.LeaseDuration + healthTolerance
	if ended.IsZero() || cfg.ShutdownTimeout == 0 { // a drain without a limit renews the lease
		if renewed > limit {
			return fmt.Errorf("the lease %s was last renewed %v ago", cfg.Name, renewed.Round(time.Second))
		}
		return nil
	}
	if late := now.Sub(ended); late > max(limit, cfg.ShutdownTimeout+healthTolerance) {
		return fmt.Errorf("the term on lease %s ended %v ago and controllers still run", cfg.Name, late.Round(time.Second))
	}
	return nil
}
