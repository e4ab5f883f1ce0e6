package deploy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"minikcm/test/controlplane"
)

type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(t *testing.T) *applier {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

func (a *applier) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	return a.client.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// apply sends o, as a trial or in earnest.
func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured, dryRun ...string) error {
	resource, err := a.resource(o)
	if err != nil {
		return err
	}
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(ctx, o.GetName(), "application/apply-patch+yaml", body, metav1.PatchOptions{
		FieldManager: "deploy-test", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
	})
	return err
}

// keep applies o until the test ends.
func (a *applier) keep(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := a.apply(t.Context(), o); err != nil {
			t.Fatalf("apply %s: %v", identify(o), err)
		}
		t.Cleanup(func() {
			resource, err := a.resource(o)
			if err == nil {
				err = resource.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
			}
			if err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("delete %s: %v", identify(o), err)
			}
		})
	}
}

func namespace(t *testing.T, name string) {
	t.Helper()
	_, err := cluster.Client(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func TestEveryObjectPassesTheDryRun(t *testing.T) {
	namespace(t, "monitoring")
	a := newApplier(t)
	a.keep(t, parse(t, read(t, "testdata", "crds.yaml"))...)
	objects := map[string][]*unstructured.Unstructured{
		"static-pod": parse(t, read(t, deployDir, "static-pod", "controller-manager.yaml")),
	}
	for _, dir := range overlays {
		objects[dir] = render(t, dir)
	}
	for _, dir := range combined {
		objects[dir] = kustomize(t, dir)
	}
	for dir, list := range objects {
		for _, o := range list {
			t.Run(dir+"/"+identify(o), func(t *testing.T) {
				// A kind that was defined a moment ago is not served at once.
				controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
					err := a.apply(ctx, o, metav1.DryRunAll)
					if err != nil && o.GroupVersionKind().Group == "monitoring.coreos.com" {
						a.mapper.Reset()
						return err
					}
					if err != nil {
						t.Fatal(err)
					}
					return nil
				})
			})
		}
	}
}

// The folders that kubectl cannot know about, and the files that no list names, would not be tested.
func TestNoFileOfDeployIsForgotten(t *testing.T) {
	known := map[string]bool{"README.md": true, "Containerfile": true, "static-pod": true}
	for _, dir := range append(slices.Clone(overlays), components...) {
		known[dir] = true
	}
	entries, err := os.ReadDir(deployDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("deploy/%s is not known to this test", e.Name())
		}
	}
}

// The operator's object is made from the file that promtool tests.
func TestPrometheusRuleIsMadeFromAlerts(t *testing.T) {
	var want bytes.Buffer
	want.WriteString("# Made from deploy/prometheus/alerts.yaml by go test ./test/integration/deploy -update, do not edit.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: controller-manager\n  namespace: monitoring\nspec:\n")
	alerts := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAll(read(t, deployDir, "prometheus", "alerts.yaml"), nil)
	want.Write(regexp.MustCompile(`(?m)^(.)`).ReplaceAll(alerts, []byte("  $1")))
	path := filepath.Join(deployDir, "prometheus-operator", "prometheusrule.yaml")
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(read(t, path), want.Bytes()) {
		t.Errorf("%s differs from alerts.yaml; run go test ./test/integration/deploy -run PrometheusRule -update", path)
	}
}
