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

// checks are the named conditions behind a health path. They may be added while requests are answered.
type checks struct {
	lock sync.RWMutex
	list []*check
}

type check struct {
	name string
	ask  func() error

	lock    sync.Mutex
	failing bool // at the last request; a change is logged
}

// newChecks returns checks with the one that always passes, so that there is something to list.
func newChecks() *checks {
	c := &checks{}
	c.add("ping", func() error { return nil })
	return c
}

// add puts a check at the end, or in the place of one of the same name.
func (c *checks) add(name string, ask func() error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	added := &check{name: name, ask: ask}
	if i := slices.IndexFunc(c.list, func(old *check) bool { return old.name == name }); i >= 0 {
		c.list[i] = added
		return
	}
	c.list = append(c.list, added)
}

func (c *checks) all() []*check {
	c.lock.RLock()
	defer c.lock.RUnlock()
	return slices.Clone(c.list)
}

// handler answers path and, below it, one path per check.
func (c *checks) handler(path string) http.Handler {
	kind := strings.TrimPrefix(path, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, path), "/")
		if rest == "" {
			c.serveAll(w, r, kind)
			return
		}
		list := c.all()
		i := slices.IndexFunc(list, func(one *check) bool { return one.name == rest })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		// Whoever may read this path was authorized for it, so the reason is told.
		if err := list[i].ask(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, "ok")
	})
}

// serveAll answers in the words of the health endpoints of Kubernetes components, which people and tools read. Reasons are
// withheld because anybody may ask; they are in the log and on the path of the check.
func (c *checks) serveAll(w http.ResponseWriter, r *http.Request, kind string) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var report strings.Builder
	healthy := true
	for _, one := range c.all() {
		if slices.Contains(excluded, one.name) {
			excluded = slices.DeleteFunc(slices.Clone(excluded), func(name string) bool { return name == one.name })
			_, _ = fmt.Fprintf(&report, "[+]%s excluded: ok\n", one.name)
			continue
		}
		if one.passes(r, kind) {
			_, _ = fmt.Fprintf(&report, "[+]%s ok\n", one.name)
			continue
		}
		healthy = false
		_, _ = fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", one.name)
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

// passes asks the check, counts the answer and logs a change of it.
func (c *check) passes(r *http.Request, kind string) bool {
	err := c.ask()
	status := slis.Success
	if err != nil {
		status = slis.Error
	}
	slis.ObserveHealthcheck(r.Context(), c.name, kind, status)
	c.lock.Lock()
	changed := c.failing != (err != nil)
	c.failing = err != nil
	c.lock.Unlock()
	log := klog.FromContext(r.Context())
	switch {
	case changed && err != nil:
		log.Error(err, "Health check fails", "check", c.name, "path", kind)
	case changed:
		log.Info("Health check passes again", "check", c.name, "path", kind)
	}
	return err == nil
}
