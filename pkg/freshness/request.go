package freshness

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// watchTarget is a collection of objects that is listed and watched.
type watchTarget struct {
	schema.GroupVersionResource
	namespace string // Empty for all namespaces.
}

func (t watchTarget) String() string {
	if t.namespace == "" {
		return t.Resource
	}
	return t.Resource + " in " + t.namespace
}

func (t watchTarget) labels() []string { return []string{t.Resource, t.namespace} }

// includes reports whether a watch of t delivers all objects of other.
func (t watchTarget) includes(other watchTarget) bool {
	return t.GroupVersionResource == other.GroupVersionResource && (t.namespace == other.namespace || t.namespace == "")
}

// informerRequest is a parsed GET request. The resource is empty if the URL is not that of a collection.
type informerRequest struct {
	watchTarget
	watch     bool
	resumes   bool // The watch starts at a version. All other requests read the whole collection.
	firstPage bool // The request starts a list, in pages or as a stream.
	streams   bool // The list comes as a stream.
}

func parseRequest(u *url.URL) informerRequest {
	target, ok := parseCollection(u.Path)
	if !ok {
		return informerRequest{}
	}
	query := u.Query()
	version := query.Get("resourceVersion")
	r := informerRequest{watchTarget: target, watch: query.Get("watch") == "true" || query.Get("watch") == "1"}
	r.streams = r.watch && query.Get("sendInitialEvents") == "true"
	r.resumes = r.watch && !r.streams && version != "" && version != "0"
	r.firstPage = !r.resumes && query.Get("continue") == ""
	return r
}

// parseCollection parses [prefix]/api/v1 or [prefix]/apis/group/version, followed by [/namespaces/name]/resource.
func parseCollection(path string) (target watchTarget, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:]
	}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		target.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		target.Group, target.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return watchTarget{}, false
	}
	if len(parts) == 3 && parts[0] == "namespaces" {
		target.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) != 1 {
		return watchTarget{}, false
	}
	target.Resource = parts[0]
	return target, true
}
