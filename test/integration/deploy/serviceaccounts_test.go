package deploy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

// accounts are the service accounts by role, and the ends of the user agents.
var accounts = map[string]string{
	"controller-manager:deployment-controller":            "deployment-controller",
	"controller-manager:replicaset-controller":            "replicaset-controller",
	"controller-manager:node-lifecycle-controller":        "node-controller",
	"controller-manager:taint-eviction-controller":        "node-controller",
	"controller-manager:pod-garbage-collector-controller": "pod-garbage-collector",
	"controller-manager:namespace-controller":             "namespace-controller",
	"controller-manager:endpointslice-controller":         "endpointslice-controller",
	"controller-manager:garbage-collector-controller":     "generic-garbage-collector",
}

const withAccounts = "--use-service-account-credentials"

// TestManagerWithServiceAccounts runs all controllers with deploy/service-accounts, without the API server's default
// bindings for these accounts.
func TestManagerWithServiceAccounts(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	withoutUpstreamsBindings(t)
	requests := runWorkload(t, "accounts", kustomize(t, accountsRights), []string{withAccounts}, func(int) {}).Select(controlplane.Writes)
	for _, user := range accountUsers() {
		if len(requests.Select(controlplane.ByUser(user))) == 0 {
			t.Errorf("%s wrote nothing, so its role was not tried", user)
		}
	}
	own := []string{"leases", "events", "serviceaccounts", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"}
	for _, e := range requests.Select(controlplane.ByUser(identity)) {
		if !slices.Contains(own, e.ObjectRef.Resource) {
			t.Errorf("the manager itself sent %s %s", e.Verb, e.RequestURI)
		}
	}
}

func accountUsers() (users []string) {
	for _, account := range accounts {
		users = append(users, controlplane.ServiceAccount(account))
	}
	return users
}

func withoutUpstreamsBindings(t *testing.T) {
	t.Helper()
	for _, account := range slices.Compact(slices.Sorted(maps.Values(accounts))) {
		var binding rbacv1.ClusterRoleBinding
		must(t, admin.Get(t.Context(), client.ObjectKey{Name: "system:controller:" + account}, &binding))
		must(t, admin.Delete(t.Context(), &binding))
		t.Cleanup(func() {
			binding.UID, binding.ResourceVersion = "", ""
			if err := admin.Create(context.Background(), &binding); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRolesAreWithinUpstreams: the roles of this repository grant nothing beyond the API server's default roles, so
// that controllers work with either.
func TestRolesAreWithinUpstreams(t *testing.T) {
	for _, r := range rights(t, render(t, "rbac")) {
		account, ok := accounts[r.role]
		if !ok {
			continue
		}
		user := controlplane.ServiceAccount(account)
		if r.verb == "list" || r.verb == "watch" {
			user = "system:kube-controller-manager"
		}
		resource, sub, _ := strings.Cut(r.resource, "/")
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Name: r.name,
		}}}
		must(t, admin.Create(t.Context(), &review))
		if !review.Status.Allowed {
			t.Errorf("%s may not %s", user, r)
		}
	}
}

func TestNoControllersRoleStaysWithTheManager(t *testing.T) {
	moved := 0
	for _, o := range kustomize(t, accountsRights) {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		binding := o.DeepCopy()
		binding.SetKind("ClusterRoleBinding")
		want, ok := accounts[o.GetName()]
		if !ok {
			want = "controller-manager"
		} else {
			moved++
		}
		if subjects := convert[rbacv1.ClusterRoleBinding](t, binding).Subjects; len(subjects) != 1 || subjects[0].Name != want {
			t.Errorf("%s is given to %v, want %s", identify(o), subjects, want)
		}
	}
	if moved != len(accounts) {
		t.Errorf("%d bindings of controllers' roles found", moved)
	}
}
