package app

import (
	"os"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"minikcm/internal/fakeapi"
)

// rolesOf returns the permissions of the roles in a file of deploy/, a single verb on one resource each.
func rolesOf(t *testing.T, file string) (granted []permission) {
	t.Helper()
	text := fakeapi.Must(os.ReadFile("../../deploy/" + file))
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				resource, sub, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range append([]string{""}, rule.ResourceNames...)[min(1, len(rule.ResourceNames)):] {
						granted = append(granted, permission{ResourceAttributes: authorizationv1.ResourceAttributes{
							Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Namespace: role.Namespace, Name: name,
						}})
					}
				}
			}
		}
	}
	return granted
}

// covers reports whether a granted permission is enough for the required permission.
func (r permission) covers(required permission) bool {
	fits := func(granted, required, all string) bool { return granted == required || granted == all }
	return r.Verb == required.Verb && fits(r.Group, required.Group, "*") && (r.Resource == "*" || r.Resource == required.Resource && r.Subresource == required.Subresource) &&
		fits(r.Namespace, required.Namespace, "") && fits(r.Name, required.Name, "")
}

// compareRights fails the test unless the granted rights cover the required ones, and each of own, which are
// granted besides, is necessary for a required right.
func compareRights(t *testing.T, required []need, granted, own []permission) {
	t.Helper()
	granted = slices.Concat(granted, own)
	needed := map[permission]bool{}
	for _, n := range required {
		if n.path != "" { // granted to every client by the API server's own roles
			continue
		}
		var by []permission
		for _, g := range granted {
			if g.covers(n.permission) && !slices.Contains(by, g) {
				by = append(by, g)
			}
		}
		switch len(by) {
		case 0:
			t.Errorf("%s is required and not granted", n)
		case 1:
			needed[by[0]] = true
		}
	}
	for _, g := range own {
		if !needed[g] {
			t.Errorf("%s is granted and not required", g)
		}
	}
}

// requiredBy returns the permissions that a manager with these flags requires, by account.
func requiredBy(t *testing.T, args ...string) map[string][]need {
	t.Helper()
	cfg := fakeapi.Must(parsed(t, append([]string{"--kubeconfig=" + minimalKubeconfig(t)}, args...)...).Complete())
	by := map[string][]need{}
	for _, n := range requiredPermissions(cfg) {
		by[n.account] = append(by[n.account], n)
	}
	return by
}

// TestDeployGrantsExactlyWhatIsRequired compares the roles of deploy/ with the rights that controllers
// request: for each controller the role in a separate file, beside the role of every manager; and with service
// accounts the remaining role of the manager, and the roles of the accounts.
func TestDeployGrantsExactlyWhatIsRequired(t *testing.T) {
	const identity, accounts, collector = "rbac/identity.yaml", "--use-service-account-credentials", "garbage-collector-controller"
	for i, c := range Controllers() {
		role := rolesOf(t, "rbac/"+c.Name+".yaml")
		t.Run(c.Name, func(t *testing.T) {
			common := rolesOf(t, identity)
			required := requiredBy(t, "--controllers="+c.Name)[""]
			compareRights(t, required, common, role)
			if i == 0 {
				compareRights(t, required, role, common)
			}
			for _, n := range requiredBy(t, "--controllers="+c.Name, accounts)[c.Agent] {
				if n.path == "" && !slices.ContainsFunc(role, func(g permission) bool { return g.covers(n.permission) }) {
					t.Errorf("%s is required by the account %s and not granted", n, c.Agent)
				}
			}
		})
	}
	t.Run(accounts, func(t *testing.T) {
		compareRights(t, requiredBy(t, "--controllers=*,-"+collector, accounts)[""], rolesOf(t, identity), rolesOf(t, "service-accounts/manager.yaml"))
		compareRights(t, requiredBy(t, "--controllers="+collector, accounts)[""], rolesOf(t, identity), rolesOf(t, "service-accounts/garbage-collector.yaml"))
	})
}
