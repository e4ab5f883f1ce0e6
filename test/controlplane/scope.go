package controlplane

import (
	"net/http"
	"path"
	"slices"

	"k8s.io/client-go/rest"
)

const ScopeLabel = "controlplane.test/scope"

// Scope returns a copy of cfg whose lists and watches of resources return only objects with the label
// [ScopeLabel]=scope. Controllers with different scopes can work in the same cluster. A proxy of package faults for
// the copy gives a process this scope.
func Scope(cfg *rest.Config, scope string, resources ...string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &scoped{next, ScopeLabel + "=" + scope, resources}
	})
	return cfg
}

type scoped struct {
	next      http.RoundTripper
	selector  string
	resources []string
}

// RoundTrip implements http.RoundTripper.
func (s *scoped) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && slices.Contains(s.resources, path.Base(req.URL.Path)) {
		req = req.Clone(req.Context())
		query := req.URL.Query()
		if others := query.Get("labelSelector"); others != "" && others != s.selector {
			query.Set("labelSelector", others+","+s.selector)
		} else {
			query.Set("labelSelector", s.selector)
		}
		req.URL.RawQuery = query.Encode()
	}
	return s.next.RoundTrip(req)
}
