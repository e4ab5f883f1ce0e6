package kcmtest

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/namespace"
)

func TestOptionsThatWouldDoNothing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options []Option
		want    string // empty: no error
	}{
		{"none", nil, ""},
		{"no controllers", []Option{Controllers()}, "Controllers: name at least one, there is nothing to run"},
		{"no controllers, kubelets alone", []Option{Controllers(), PodsReady()}, ""},
		{"a grace that is none", []Option{NamespaceGrace(-1)}, "NamespaceGrace(-1ns): must not be negative"},
		{"a grace that is none, for nobody", []Option{NamespaceGrace(-1), Controllers("replicaset")}, "NamespaceGrace(-1ns): must not be negative"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if _, err := newSettings(tt.options).managerConfig(&rest.Config{Host: "http://api"}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNamespaceGraceIsThatOfTheController(t *testing.T) {
	cfg, err := newSettings([]Option{NamespaceGrace(5 * time.Second)}).managerConfig(&rest.Config{Host: "http://api"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cfg.Controllers {
		if n, ok := c.Config.(*namespace.Config); ok && n.Grace != 5*time.Second {
			t.Errorf("namespaces wait %v, want 5s", n.Grace)
		}
	}
}
