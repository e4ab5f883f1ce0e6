package faults

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// info describes a request as the API server does.
type info struct {
	verb        string // as in Match.Verbs; else the method in lower case
	resource    string // plural; "" for a path outside the API
	subresource string
	namespace   string
	name        string
}

func (i info) isWatch() bool { return i.verb == "watch" }

func (i info) fullResource() string {
	if i.subresource == "" {
		return i.resource
	}
	return i.resource + "/" + i.subresource
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func parseRequest(r *http.Request) info {
	i, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return info{}
	}
	return info{i.Verb, i.Resource, i.Subresource, i.Namespace, i.Name}
}
