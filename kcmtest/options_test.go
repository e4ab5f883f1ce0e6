package kcmtest

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/namespace"
)

func TestNamespaceGraceIsThatOfTheController(t *testing.T) {
	cfg, err := newSettings([]Option{NamespaceGrace(5 * time.Second), Controllers("namespace")}).managerConfig(&rest.Config{Host: "http://api"})
	if err != nil {
		t.Fatal(err)
	}
	if grace := cfg.Controllers[0].Config.(*namespace.Config).Grace; grace != 5*time.Second {
		t.Errorf("namespaces wait %v, want 5s", grace)
	}
}
