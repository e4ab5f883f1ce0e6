package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		flags, given := parseArgs(t, d.Spec.Template.Spec.Containers[0].Args)
		list, err := flags.GetStringSlice("controllers")
		must(t, err)
		h := half{lease: given["leader-elect-resource-name"], controllers: list}
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if !strings.HasPrefix(arg, "--secure-port=") {
				h.args = append(h.args, arg)
			}
		}
		found[name] = h
	}
	return found
}

// TestTwoLeasesShareTheControllers requires each controller in exactly one of the two lists.
func TestTwoLeasesShareTheControllers(t *testing.T) {
	for dir, want := range map[string][]string{
		filepath.Join(deployDir, "two-leases"): slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return slices.Contains(named(), name) }),
		everythingsHalves:                      controllers,
	} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var all, leases []string
			for name, h := range halves(t, kustomize(t, dir)) {
				all, leases = append(all, h.controllers...), append(leases, h.lease)
				if h.lease != name {
					t.Errorf("%s competes for lease %q; operators look for one of its name", name, h.lease)
				}
			}
			slices.Sort(all)
			if want := slices.Sorted(slices.Values(want)); !slices.Equal(all, want) {
				t.Errorf("the Deployments run %v, want each of %v once", all, want)
			}
			slices.Sort(leases)
			for _, r := range rights(t, kustomize(t, dir)) {
				if r.resource == "leases" && r.name != "" && !slices.Contains(leases, r.name) {
					t.Errorf("there is a right to %s, which nobody needs", r)
				}
			}
		})
	}
}

// TestTheGarbageCollectorIsNamedOnce requires the loop and its rights once, and for a dry run no rights to write.
func TestTheGarbageCollectorIsNamedOnce(t *testing.T) {
	for dir, may := range map[string][]string{
		"deployment": nil, "two-leases": nil,
		"garbage-collector": {"get", "list", "watch", "patch", "delete"}, "everything-two-leases": {"get", "list", "watch", "patch", "delete"},
		"garbage-collector-dry-run": {"get", "list", "watch"},
	} {
		t.Run(dir, func(t *testing.T) {
			from := filepath.Join("testdata", dir)
			if may == nil {
				from = filepath.Join(deployDir, dir)
			}
			objects := kustomize(t, from)
			var verbs []string
			for _, r := range rights(t, objects) {
				if r.role == "controller-manager:garbage-collector-controller" {
					verbs = append(verbs, r.verb)
				}
			}
			if !slices.Equal(verbs, may) {
				t.Errorf("it may %v, want %v", verbs, may)
			}
			var names []string
			for name, d := range deployments(t, objects) {
				flags, given := parseArgs(t, d.Spec.Template.Spec.Containers[0].Args)
				list, err := flags.GetStringSlice("controllers")
				must(t, err)
				if slices.Contains(list, "garbage-collector-controller") {
					names = append(names, name)
				}
				if observes := given["garbage-collector-dry-run"] == "true"; observes != (len(may) == 3) {
					t.Errorf("%s only observes: %v", name, observes)
				}
			}
			if len(names) != min(1, len(may)) {
				t.Errorf("%v run it", names)
			}
		})
	}
}
