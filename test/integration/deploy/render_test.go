package deploy

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var combined = []string{
	everythingsRights, "testdata/deployments-deployment", everythingsHalves,
	"testdata/garbage-collector", "testdata/garbage-collector-dry-run",
	"testdata/service-accounts", "testdata/service-accounts-deployment", "testdata/service-accounts-two-leases", "testdata/service-accounts-deployments", everythingsAccounts,
}

const (
	everythingsRights   = "testdata/everything"            // rbac and all components
	everythingsHalves   = "testdata/everything-two-leases" // the same components with two leases
	everythingsAccounts = "testdata/service-accounts-everything"
)

var components = []string{"service-accounts", "deployments", "garbage-collector"}

// overlays are the folders of deploy/ for kubectl apply -k.
var overlays = []string{"rbac", "deployment", "two-leases", "prometheus", "prometheus-operator", "grafana"}

func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	return kustomize(t, filepath.Join(deployDir, dir))
}

var kustomized sync.Map

func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	if text, ok := kustomized.Load(dir); ok {
		return parse(t, text.([]byte))
	}
	var complaints bytes.Buffer
	cmd := exec.Command(built(t, "kubectl"), "kustomize", dir)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, &complaints)
	}
	kustomized.Store(dir, out)
	return parse(t, out)
}

// parse reads the objects of a YAML file.
func parse(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

func identify(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}
