package faults

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// info describes a request as the API server does: verb, resource and name.
type info struct {
	verb        string // as in Match.Verbs; else the method in lower case
	resource    string // plural; "" for a path outside the API
	subresource string
	namespace   string
	name        string
}

func (i info) watch() bool { return i.verb == "watch" }

func (i info) fullResource() string {
	if i.subresource == "" {
		return i.resource
	}
	return i.resource + "/" + i.subresource
}

// parse reads a request line the way the API server does. The deprecated /watch/ paths are not known.
func parse(r *http.Request) info {
	i := parsePath(strings.Split(strings.Trim(r.URL.Path, "/"), "/"))
	if i.resource == "" {
		i.verb = strings.ToLower(r.Method)
		return i
	}
	query := r.URL.Query()
	watch, _ := strconv.ParseBool(query.Get("watch"))
	i.verb = verb(r.Method, i.name != "", watch)
	if i.name == "" {
		i.name = nameInSelector(query.Get("fieldSelector"))
	}
	return i
}

func parsePath(parts []string) info {
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return info{}
	}
	var i info
	inNamespace := parts[0] == "namespaces" && len(parts) > 2 && !slices.Contains([]string{"status", "finalize"}, parts[2])
	if inNamespace {
		i.namespace = parts[1]
		parts = parts[2:]
	}
	i.resource = parts[0]
	if len(parts) > 1 {
		i.name = parts[1]
	}
	if len(parts) > 2 {
		i.subresource = strings.Join(parts[2:], "/")
	}
	if !inNamespace && i.resource == "namespaces" {
		i.namespace = i.name // as the API server's own request info
	}
	return i
}

func verb(method string, named, watch bool) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if named {
			return "delete"
		}
		return "deletecollection"
	case http.MethodGet, http.MethodHead:
		switch {
		case named:
			return "get"
		case watch:
			return "watch"
		}
		return "list"
	}
	return strings.ToLower(method)
}

func nameInSelector(selector string) string {
	for term := range strings.SplitSeq(selector, ",") {
		if name, ok := strings.CutPrefix(term, "metadata.name="); ok {
			return strings.TrimPrefix(name, "=")
		}
	}
	return ""
}
