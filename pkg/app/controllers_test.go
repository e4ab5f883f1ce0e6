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
		{"alias", []string{"short"}, true},
		{"name after alias", []string{"-short", "a"}, false},
	} {
		fakeapi.Want(t, tt.name, isEnabled(controller.Registration{Name: "a", Alias: "short"}, tt.items), tt.want)
	}
}
