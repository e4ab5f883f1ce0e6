package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"minikcm/pkg/app"
)

type half struct {
	lease       string
	controllers []string
	args        []string
}

func halves(t *testing.T, objects []*unstructured.Unstructured) map[string]half {
	t.Helper()
	found := map[string]half{}
	for name, d := range deployments(t, objects) {
		args := d.Spec.Template.Spec.Containers[0].Args
		_, given := parseArgs(t, args)
		h := half{lease: given["leader-elect-resource-name"], controllers: enabled(t, args)}
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if !strings.HasPrefix(arg, "--secure-port=") {
				h.args = append(h.args, arg)
			}
		}
		found[name] = h
	}
	return found
}

// enabled returns the controllers that run with args.
func enabled(t *testing.T, args []string) (names []string) {
	t.Helper()
	flags, _ := parseArgs(t, args)
	list, err := flags.GetStringSlice("controllers")
	must(t, err)
	o := app.NewOptions(app.Controllers())
	o.Items, o.REST = list, &rest.Config{}
	cfg, err := o.Complete()
	must(t, err)
	for _, c := range cfg.Controllers {
		names = append(names, c.Name)
	}
	return names
}

// TestTwoLeasesShareTheControllers requires each controller in exactly one of the two Deployments.
func TestTwoLeasesShareTheControllers(t *testing.T) {
	var all, leases []string
	objects := render(t, "two-leases")
	for name, h := range halves(t, objects) {
		all, leases = append(all, h.controllers...), append(leases, h.lease)
		if h.lease != name {
			t.Errorf("%s competes for lease %q; operators look for one of its name", name, h.lease)
		}
	}
	slices.Sort(all)
	if want := slices.Sorted(slices.Values(controllers)); !slices.Equal(all, want) {
		t.Errorf("the Deployments run %v, want each of %v once", all, want)
	}
	for _, r := range rights(t, objects) {
		if r.resource == "leases" && r.name != "" && !slices.Contains(leases, r.name) {
			t.Errorf("no Deployment needs the right to %s", r)
		}
	}
}

// TestGarbageCollectorDryRunHasNoRightToWrite requires the flag together with rights that only read.
func TestGarbageCollectorDryRunHasNoRightToWrite(t *testing.T) {
	for dir, want := range map[string][]string{
		filepath.Join(deployDir, "deployment"): {"get", "list", "watch", "patch", "delete"},
		"testdata/garbage-collector-dry-run":   {"get", "list", "watch"},
	} {
		objects := kustomize(t, dir)
		var verbs []string
		for _, r := range rights(t, objects) {
			if r.role == "controller-manager:garbage-collector-controller" {
				verbs = append(verbs, r.verb)
			}
		}
		if !slices.Equal(verbs, want) {
			t.Errorf("%s: the collector may %v, want %v", dir, verbs, want)
		}
		_, given := parseArgs(t, deployments(t, objects)["controller-manager"].Spec.Template.Spec.Containers[0].Args)
		if dryRun := given["garbage-collector-dry-run"] == "true"; dryRun != (len(want) == 3) {
			t.Errorf("%s: dry run: %v", dir, dryRun)
		}
	}
}
