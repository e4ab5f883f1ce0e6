package deploy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

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
	newApplier(t).keep(t, kustomize(t, accountsRights)...)
	_ = cluster.Client(t).CoordinationV1().Leases("kube-system").Delete(t.Context(), "controller-manager", metav1.DeleteOptions{})
	begin := time.Now()
	start(t, withAccounts)
	w := startWorkload(t, "accounts")
	w.wait(t)
	w.letGo(t)

	requests := cluster.AuditLog(t, controlplane.Received, func(e *auditv1.Event) bool { return e.RequestReceivedTimestamp.After(begin) })
	users := []string{identity}
	for role, account := range accounts {
		user := controlplane.ServiceAccount(account)
		users = append(users, user)
		if len(requests.Select(controlplane.ByUser(user), controlplane.Writes)) == 0 {
			t.Errorf("%s wrote nothing, so %s was not tried", user, role)
		}
	}
	own := []string{"leases", "events", "serviceaccounts", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"}
	for _, e := range requests.Select(controlplane.ByUser(identity), controlplane.Writes) {
		if !slices.Contains(own, e.ObjectRef.Resource) {
			t.Errorf("the manager itself sent %s %s", e.Verb, e.RequestURI)
		}
	}
	refused := cluster.AuditLog(t, unauthorized, func(e *auditv1.Event) bool {
		return e.RequestReceivedTimestamp.After(begin) && slices.Contains(users, e.User.Username)
	})
	if len(refused) > 0 {
		t.Errorf("the API server refused:\n%s", refused)
	}
}

func withoutUpstreamsBindings(t *testing.T) {
	t.Helper()
	bindings := cluster.Client(t).RbacV1().ClusterRoleBindings()
	for _, account := range slices.Compact(slices.Sorted(maps.Values(accounts))) {
		binding, err := bindings.Get(t.Context(), "system:controller:"+account, metav1.GetOptions{})
		must(t, err)
		must(t, bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))
		t.Cleanup(func() {
			binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels, Annotations: binding.Annotations}
			if _, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRolesAreWithinUpstreams: the roles of this repository grant nothing beyond the API server's default roles, so
// that controllers work with either.
func TestRolesAreWithinUpstreams(t *testing.T) {
	reviews := cluster.Client(t).AuthorizationV1().SubjectAccessReviews()
	for _, r := range rights(t, render(t, "rbac")) {
		account, ok := accounts[r.role]
		if !ok {
			continue
		}
		user := controlplane.ServiceAccount(account)
		if r.verb == "list" || r.verb == "watch" {
			user = "system:kube-controller-manager"
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: attributes(r),
		}}
		answer, err := reviews.Create(context.Background(), review, metav1.CreateOptions{})
		must(t, err)
		if !answer.Status.Allowed {
			t.Errorf("%s may not %s", user, r)
		}
	}
}

func attributes(r right) *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.resource, "/")
	return &authorizationv1.ResourceAttributes{Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Name: r.name}
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
