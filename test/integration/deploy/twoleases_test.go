package deploy

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

// half is one of the two Deployments: its arguments, its lease and its controllers.
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

// A controller in both lists would run twice, one in neither not at all. Those that have to be named come with their components.
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

// Both lead at the same time, each for its controllers, and together do all the work with the rights that the folder grants.
func TestTwoLeasesWorkTogether(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	newApplier(t).keep(t, slices.DeleteFunc(kustomize(t, everythingsHalves), func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })...)
	begin := time.Now()
	for _, h := range halves(t, kustomize(t, everythingsHalves)) {
		start(t, h.args...)
	}
	w := startWorkload(t, "halves")
	w.wait(t)
	w.letGo(t)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		holders := map[string]bool{}
		for _, h := range halves(t, kustomize(t, everythingsHalves)) {
			lease, err := cluster.Client(t).CoordinationV1().Leases("kube-system").Get(ctx, h.lease, metav1.GetOptions{})
			if err != nil {
				return err
			}
			holders[ptr.Deref(lease.Spec.HolderIdentity, "")] = true
		}
		if len(holders) != 2 || holders[""] {
			return fmt.Errorf("the leases are held by %v, want two holders", holders)
		}
		return nil
	})
	refused := cluster.AuditLog(t, controlplane.ByUser(identity), unauthorized, func(e *auditv1.Event) bool { return e.RequestReceivedTimestamp.After(begin) })
	if len(refused) > 0 {
		t.Errorf("the API server refused:\n%s", refused)
	}
}

// Who adds the component has the loop once, and with it the rights; for a trial those to change something are not among them.
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
