package kcmtest

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controllers/namespace"
)

func TestNamespaceGraceIsThatOfTheController(t *testing.T) {
	cfg := fakeapi.Must(newSettings([]Option{NamespaceGrace(5 * time.Second), Controllers("namespace")}).managerConfig(&rest.Config{Host: "http://api"}))
	fakeapi.Want(t, "grace of namespaces", cfg.Controllers[0].Config.(*namespace.Config).Grace, 5*time.Second)
}
