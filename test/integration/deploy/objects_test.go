package deploy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

// apply sends o, as a trial or in earnest. Unknown and repeated fields are errors.
func apply(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	opts = append(opts, client.ForceOwnership, client.FieldOwner("deploy-test"))
	return admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), opts...)
}

// keep applies objects until the test ends.
func keep(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := apply(t.Context(), o); err != nil {
			t.Fatalf("apply %s: %v", identify(o), err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %s: %v", identify(o), err)
			}
		})
	}
}

func namespace(t *testing.T, name string) {
	t.Helper()
	controlplane.Must(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})))
}

// TestEveryObjectPassesTheDryRun tries the objects of every folder for kubectl apply -k, of the components in
// testdata, and of the static pod.
func TestEveryObjectPassesTheDryRun(t *testing.T) {
	namespace(t, "monitoring")
	keep(t, parse(t, read(t, "testdata", "crds.yaml"))...)
	objects := map[string][]*unstructured.Unstructured{
		"static-pod": parse(t, read(t, deployDir, "static-pod", "controller-manager.yaml")),
	}
	for _, parent := range []string{deployDir, "testdata"} {
		files, err := filepath.Glob(filepath.Join(parent, "*", "kustomization.yaml"))
		controlplane.Must(t, err)
		for _, file := range files {
			if !bytes.Contains(read(t, file), []byte("kind: Component\n")) {
				objects[filepath.Dir(file)] = kustomize(t, filepath.Dir(file))
			}
		}
	}
	if len(objects) < 13 {
		t.Errorf("%d folders, want 13", len(objects))
	}
	for dir, list := range objects {
		for _, o := range list {
			t.Run(filepath.Base(dir)+"/"+identify(o), func(t *testing.T) {
				// A kind that was defined a moment ago is not served at once.
				controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
					err := apply(ctx, o, client.DryRunAll)
					if err != nil && o.GroupVersionKind().Group != "monitoring.coreos.com" {
						t.Fatal(err)
					}
					return err
				})
			})
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
		controlplane.Must(t, os.WriteFile(path, want.Bytes(), 0o644))
	}
	if !bytes.Equal(read(t, path), want.Bytes()) {
		t.Errorf("%s differs from alerts.yaml; run go test ./test/integration/deploy -run PrometheusRule -update", path)
	}
}
