package deploy

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// overlays are the folders of deploy/ for kubectl apply -k.
var overlays = []string{"rbac", "deployment", "prometheus", "prometheus-operator", "grafana"}

// kustomization is the part of the format that deploy/ uses; other fields are errors.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Namespace  string   `json:"namespace"`
	Resources  []string `json:"resources"`
	Images     []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
	GeneratorOptions struct {
		DisableNameSuffixHash bool              `json:"disableNameSuffixHash"`
		Labels                map[string]string `json:"labels"`
	} `json:"generatorOptions"`
	ConfigMapGenerator []struct {
		Name  string   `json:"name"`
		Files []string `json:"files"`
	} `json:"configMapGenerator"`
}

// render does what kubectl kustomize does with a folder of deploy/.
func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	var k kustomization
	if err := sigsyaml.UnmarshalStrict(read(t, deployDir, dir, "kustomization.yaml"), &k); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range k.Resources {
		path := filepath.Join(dir, resource)
		if filepath.Ext(path) == "" {
			objects = append(objects, render(t, path)...)
			continue
		}
		objects = append(objects, parse(t, read(t, deployDir, path))...)
	}
	for _, g := range k.ConfigMapGenerator {
		cm := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{}}}
		cm.SetName(g.Name)
		cm.SetNamespace(k.Namespace)
		cm.SetLabels(k.GeneratorOptions.Labels)
		for _, file := range g.Files {
			cm.Object["data"].(map[string]any)[file] = string(read(t, deployDir, dir, file))
		}
		objects = append(objects, cm)
	}
	for _, image := range k.Images {
		for _, o := range objects {
			setImage(t, o, image.Name, image.NewName+":"+image.NewTag)
		}
	}
	return objects
}

// setImage replaces the image name in the pods that o makes, if it makes any.
func setImage(t *testing.T, o *unstructured.Unstructured, name, image string) {
	t.Helper()
	path := []string{"spec", "template", "spec", "containers"}
	containers, found, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return
	}
	for _, c := range containers {
		if c := c.(map[string]any); c["image"] == name {
			c["image"] = image
		}
	}
	if err := unstructured.SetNestedSlice(o.Object, containers, path...); err != nil {
		t.Fatal(err)
	}
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

// identify is how messages name an object.
func identify(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}

// The tests read the folders their own way; this shows that kubectl sees the same in them.
func TestKubectlRendersTheSame(t *testing.T) {
	kubectl := program(t, "kubectl", "see kubernetes.io/docs/tasks/tools")
	for _, dir := range overlays {
		t.Run(dir, func(t *testing.T) {
			out, err := exec.Command(kubectl, "kustomize", filepath.Join(deployDir, dir)).Output()
			if err != nil {
				t.Fatal(err)
			}
			byName := func(a, b *unstructured.Unstructured) int { return strings.Compare(identify(a), identify(b)) }
			got, want := parse(t, out), render(t, dir)
			slices.SortFunc(got, byName)
			slices.SortFunc(want, byName)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kubectl renders otherwise than this test (-test +kubectl):\n%s", diff)
			}
		})
	}
}
