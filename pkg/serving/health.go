package serving

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
)

// Check is a named condition of /livez, /healthz or /readyz. Several goroutines call the function, once per
// request, so the function must not block.
type Check struct {
	Name string
	Run  func() error
}

// checkers returns the checks of a path behind "ping", which always passes. They log each change of a result.
func checkers(path string, list []Check) []healthz.HealthChecker {
	all := []healthz.HealthChecker{healthz.PingHealthz}
	for _, c := range list {
		var failing atomic.Bool
		all = append(all, healthz.NamedCheck(c.Name, func(r *http.Request) error {
			err := c.Run()
			switch log := klog.FromContext(r.Context()); {
			case failing.Swap(err != nil) == (err != nil):
			case err != nil:
				log.Error(err, "Health check fails", "check", c.Name, "path", path)
			default:
				log.Info("Health check passes again", "check", c.Name, "path", path)
			}
			return err
		}))
	}
	return all
}
