package app

import (
	"testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
)

func TestEnabled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		items []string
		want  bool
	}{
		{"named", []string{"a"}, true},
		{"not named, no star", []string{"b"}, false},
		{"not named, star", []string{"*"}, true},
		{"switched off before the star", []string{"-a", "*"}, false},
		{"the first item that names it decides: off", []string{"-a", "a"}, false},
		{"the first item that names it decides: on", []string{"a", "-a"}, true},
		{"nothing", nil, false},
		{"alias", []string{"short"}, true},
		{"name after alias", []string{"-short", "a"}, false},
	} {
		fakeapi.Want(t, tt.name, isEnabled(controller.Registration{Name: "a", Alias: "short"}, tt.items), tt.want)
	}
}

// Manifests contain the names, so no name may change or disappear.
func TestControllerNames(t *testing.T) {
	want := [][3]string{ // name, alias, user agent
		{"replicaset-controller", "replicaset", "replicaset-controller"},
		{"node-lifecycle-controller", "nodelifecycle", "node-controller"},
		{"taint-eviction-controller", "", "node-controller"},
		{"pod-garbage-collector-controller", "podgc", "pod-garbage-collector"},
		{"namespace-controller", "namespace", "namespace-controller"},
		{"endpointslice-controller", "endpointslice", "endpointslice-controller"},
		{"deployment-controller", "deployment", "deployment-controller"},
		{"garbage-collector-controller", "garbagecollector", "generic-garbage-collector"},
	}
	var got [][3]string
	for _, c := range Controllers() {
		got = append(got, [3]string{c.Name, c.Alias, c.Agent})
	}
	fakeapi.WantEqual(t, "controllers", got, want)
}
