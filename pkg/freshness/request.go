package freshness

import (
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// watchTarget is a collection of objects that is listed and watched.
type watchTarget struct {
	schema.GroupVersionResource
	namespace string // empty for all namespaces
}

func (t watchTarget) String() string {
	if t.namespace == "" {
		return t.Resource
	}
	return t.Resource + " in " + t.namespace
}

func (t watchTarget) labels() []string { return []string{t.Resource, t.namespace} }

// informerRequest is a parsed GET request. The resource is empty if the URL is not that of a collection.
type informerRequest struct {
	watchTarget
	watch    bool
	streams  bool // The watch begins with a list. All other watches resume at a version.
	nextPage bool // the request continues a list in pages
}

func (r informerRequest) resumes() bool { return r.watch && !r.streams }

// collectionPath has the groups API group, version, namespace and resource.
var collectionPath = regexp.MustCompile(`/(?:api|apis/([^/]+))/([^/]+)(?:/namespaces/([^/]+))?/([^/]+)$`)

func parseRequest(u *url.URL) informerRequest {
	parts := collectionPath.FindStringSubmatch(u.Path)
	if parts == nil {
		return informerRequest{}
	}
	query := u.Query()
	r := informerRequest{watch: query.Get("watch") == "true", streams: query.Get("sendInitialEvents") == "true", nextPage: query.Get("continue") != ""}
	r.watchTarget = watchTarget{schema.GroupVersionResource{Group: parts[1], Version: parts[2], Resource: parts[4]}, parts[3]}
	return r
}
