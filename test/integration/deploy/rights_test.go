package deploy

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/app"
	"minikcm/test/controlplane"
)

// accounts returns the service accounts of the controllers by role.
func accounts() map[string]string {
	found := map[string]string{}
	for _, c := range app.Controllers() {
		found["controller-manager:"+c.Name] = c.Agent
	}
	return found
}

// right is a verb on a resource that a role grants.
type right struct {
	role string
	authorizationv1.ResourceAttributes
}

func rights(t *testing.T, objects []*unstructured.Unstructured) (all []right) {
	t.Helper()
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "Role") {
			continue
		}
		for _, rule := range convert[rbacv1.ClusterRole](t, o).Rules { // a Role has the same fields
			for _, full := range rule.Resources {
				resource, sub, _ := strings.Cut(full, "/")
				for _, verb := range rule.Verbs {
					for _, name := range append([]string{""}, rule.ResourceNames...)[min(1, len(rule.ResourceNames)):] {
						all = append(all, right{o.GetName(), authorizationv1.ResourceAttributes{
							Namespace: o.GetNamespace(), Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Name: name,
						}})
					}
				}
			}
		}
	}
	return all
}

// TestRolesAreWithinUpstreams: the roles of this repository grant nothing beyond the API server's default roles, so
// that controllers work with either.
func TestRolesAreWithinUpstreams(t *testing.T) {
	for _, r := range rights(t, render(t, "rbac")) {
		account, ok := accounts()[r.role]
		if !ok {
			continue
		}
		user := controlplane.ServiceAccount(account)
		if r.Verb == "list" || r.Verb == "watch" {
			user = "system:kube-controller-manager"
		}
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &r.ResourceAttributes}}
		controlplane.Must(t, admin.Create(t.Context(), &review))
		if !review.Status.Allowed {
			t.Errorf("%s has no right %v", user, r)
		}
	}
}

// withoutUpstreamsBindings removes the API server's default bindings of the controllers' accounts during the test.
func withoutUpstreamsBindings(t *testing.T) {
	t.Helper()
	for _, account := range accounts() {
		binding := rbacv1.ClusterRoleBinding{}
		err := admin.Get(t.Context(), client.ObjectKey{Name: "system:controller:" + account}, &binding)
		if client.IgnoreNotFound(err) == nil && err != nil {
			continue // the account of two controllers
		}
		controlplane.Must(t, err)
		controlplane.Must(t, admin.Delete(t.Context(), &binding))
		t.Cleanup(func() {
			binding.UID, binding.ResourceVersion = "", ""
			if err := admin.Create(context.Background(), &binding); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithoutGarbageCollector requires that the component removes the garbage collector, its rights and its account,
// and nothing else.
func TestWithoutGarbageCollector(t *testing.T) {
	// pod-garbage-collector-controller is another controller.
	about := regexp.MustCompile(`(^|[^-\w])(generic-)?garbage-collector`)
	for with, without := range map[string]string{
		"testdata/service-accounts-deployment": "testdata/without-garbage-collector",
		filepath.Join(deployDir, "two-leases"): "testdata/without-garbage-collector-two-leases",
	} {
		var want, got, running []string
		for _, o := range kustomize(t, with) {
			if !about.MatchString(identify(o)) {
				want = append(want, identify(o))
			}
		}
		for _, o := range kustomize(t, without) {
			got = append(got, identify(o))
			if o.GetKind() != "Deployment" && about.MatchString(fmt.Sprint(o.Object)) {
				t.Errorf("%s: %s is about the garbage collector", without, identify(o))
			}
		}
		fakeapi.WantEqual(t, without+": objects", got, want)
		for _, d := range deployments(t, kustomize(t, without)) {
			running = append(running, enabled(t, d)...)
		}
		slices.Sort(running)
		others := slices.DeleteFunc(sortedNames(app.Controllers()), func(name string) bool { return name == "garbage-collector-controller" })
		fakeapi.WantEqual(t, without+": controllers", running, others)
	}
}

// TestTwoLeasesShareTheControllers requires each controller in exactly one of the two Deployments.
func TestTwoLeasesShareTheControllers(t *testing.T) {
	var running, leases []string
	objects := render(t, "two-leases")
	for name, d := range deployments(t, objects) {
		_, given := parseArgs(t, d.Spec.Template.Spec.Containers[0].Args)
		lease := given["leader-elect-resource-name"]
		running, leases = append(running, enabled(t, d)...), append(leases, lease)
		if lease != name {
			t.Errorf("%s competes for lease %q; operators look for one of its name", name, lease)
		}
	}
	slices.Sort(running)
	fakeapi.WantEqual(t, "controllers of the Deployments", running, sortedNames(app.Controllers()))
	for _, r := range rights(t, objects) {
		if r.Resource == "leases" && r.Name != "" && !slices.Contains(leases, r.Name) {
			t.Errorf("no Deployment needs the right %v", r)
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
				verbs = append(verbs, r.Verb)
			}
		}
		_, given := parseArgs(t, deployments(t, objects)["controller-manager"].Spec.Template.Spec.Containers[0].Args)
		if dryRun := given["garbage-collector-dry-run"] == "true"; !slices.Equal(verbs, want) || dryRun != (len(want) == 3) {
			t.Errorf("%s: dry run: %v, rights %v, want %v", dir, dryRun, verbs, want)
		}
	}
}
