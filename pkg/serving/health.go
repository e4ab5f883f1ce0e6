package serving

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"
)

// Check is a named condition of /livez, /healthz or /readyz. Several goroutines call the function, once per
// request, so the function must not block.
type Check struct {
	Name string
	Run  func() error
}

// checks are the conditions of one path.
type checks []*check

type check struct {
	Check
	lock    sync.Mutex
	failing bool // at the last request
}

// newChecks returns the checks behind "ping", which always passes.
func newChecks(list []Check) checks {
	all := checks{{Check: Check{Name: "ping", Run: func() error { return nil }}}}
	for _, c := range list {
		all = append(all, &check{Check: c})
	}
	return all
}

// handler serves path and, below path, one path per check.
func (c checks) handler(path string) http.Handler {
	kind := strings.TrimPrefix(path, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, path), "/")
		if rest == "" {
			c.serveAll(w, r, kind)
			return
		}
		i := slices.IndexFunc(c, func(one *check) bool { return one.Name == rest })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		// Clients of this path were authorized for the path, so the reason is included.
		if err := c[i].Run(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, "ok")
	})
}

// serveAll has the output of the health endpoints of Kubernetes components. Reasons are in the log and on the
// path of the check, because every client may read the result.
func (c checks) serveAll(w http.ResponseWriter, r *http.Request, kind string) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var report strings.Builder
	healthy := true
	for _, one := range c {
		if slices.Contains(excluded, one.Name) {
			excluded = slices.DeleteFunc(excluded, func(name string) bool { return name == one.Name })
			_, _ = fmt.Fprintf(&report, "[+]%s excluded: ok\n", one.Name)
			continue
		}
		if one.passes(r, kind) {
			_, _ = fmt.Fprintf(&report, "[+]%s ok\n", one.Name)
			continue
		}
		healthy = false
		_, _ = fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", one.Name)
	}
	if len(excluded) > 0 {
		_, _ = fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %q\n", excluded)
	}
	switch {
	case !healthy:
		http.Error(w, report.String()+kind+" check failed", http.StatusInternalServerError)
	case query.Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", report.String(), kind)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}

// passes runs the check, counts the result and logs a change of the result.
func (c *check) passes(r *http.Request, kind string) bool {
	err := c.Run()
	status := slis.Success
	if err != nil {
		status = slis.Error
	}
	slis.ObserveHealthcheck(r.Context(), c.Name, kind, status)
	c.lock.Lock()
	changed := c.failing != (err != nil)
	c.failing = err != nil
	c.lock.Unlock()
	log := klog.FromContext(r.Context())
	switch {
	case changed && err != nil:
		log.Error(err, "Health check fails", "check", c.Name, "path", kind)
	case changed:
		log.Info("Health check passes again", "check", c.Name, "path", kind)
	}
	return err == nil
}
