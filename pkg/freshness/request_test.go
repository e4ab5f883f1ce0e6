package freshness

import (
	"net/http"
	"net/http/httptest"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/internal/fakeapi"
)

var (
	podResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

func TestParseRequest(t *testing.T) {
	pods := watchTarget{podResource, ""}
	for _, tt := range []struct {
		name, url string
		want      informerRequest
	}{
		{"resumed watch", "/api/v1/pods?watch=true&resourceVersion=7", informerRequest{pods, true, false, false}},
		{"streaming list", "/api/v1/pods?watch=true&resourceVersion=7&sendInitialEvents=true", informerRequest{pods, true, true, false}},
		{"list", "/api/v1/pods?limit=500", informerRequest{pods, false, false, false}},
		{"next page of a list", "/api/v1/pods?limit=500&continue=x", informerRequest{pods, false, false, true}},
		{"one namespace", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", informerRequest{watchTarget{leaseResource, "kube-system"}, false, false, false}},
		{"namespaces", "/api/v1/namespaces", informerRequest{watchTarget{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, ""}, false, false, false}},
		{"behind a prefix", "/clusters/one/api/v1/pods", informerRequest{pods, false, false, false}},
		{"one object", "/api/v1/namespaces/kube-system", informerRequest{}},
		{"not a resource", "/healthz?watch=true", informerRequest{}},
		{"incomplete path", "/apis/apps?watch=true", informerRequest{}},
	} {
		fakeapi.Want(t, tt.name, parseRequest(httptest.NewRequest(http.MethodGet, "https://host"+tt.url, nil).URL), tt.want)
	}
}
