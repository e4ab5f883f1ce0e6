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

	"minikcm/test/controlplane"
)

const accountsRights = "testdata/service-accounts" // deploy/rbac with a service account per controller

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
		controlplane.Must(t, err)
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

func identify(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}
