package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const rolePrefix = "controller-manager:"

// ManagerConfig returns a config for the service account kube-system/name with exactly the permissions of deploy/rbac
// for the named controllers, or for all controllers. Accounts of different names have the same permissions, so that
// the audit log distinguishes managers. There is no client-side rate limit. ManagerConfig panics if deploy/rbac cannot
// be read or applied.
func (c *Cluster) ManagerConfig(name string, controllers ...string) *rest.Config {
	c.rightsLock.Lock()
	defer c.rightsLock.Unlock()
	if c.rights == nil {
		applied, err := c.applyRights()
		if err != nil {
			panic(fmt.Errorf("apply deploy/rbac: %w", err))
		}
		c.rights = applied
	}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem}
	for _, role := range c.rights {
		controller := strings.TrimPrefix(role, rolePrefix)
		if len(controllers) == 0 || !strings.HasSuffix(controller, "-controller") || slices.Contains(controllers, controller) {
			groups = append(groups, role)
		}
	}
	return c.ConfigFor(ServiceAccount(name), groups...)
}

func ServiceAccount(name string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + name
}

func (c *Cluster) ManagerKubeconfig(t testing.TB, name string, controllers ...string) string {
	t.Helper()
	return c.KubeconfigFor(t, c.ManagerConfig(name, controllers...))
}

// applyRights creates the objects of deploy/rbac, adds a group with the name of the binding to each binding, and waits
// until the authorizer uses the roles.
func (c *Cluster) applyRights() (names []string, err error) {
	objects, err := readRights()
	if err != nil {
		return nil, err
	}
	admin, err := NewClient(c.admin)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			continue
		case *rbacv1.ClusterRoleBinding:
			o.Subjects, names = append(o.Subjects, groupSubject(o.Name)), append(names, o.Name)
		case *rbacv1.RoleBinding:
			o.Subjects, names = append(o.Subjects, groupSubject(o.Name)), append(names, o.Name)
		}
		if err := admin.Create(ctx, o); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names, pollUntil(ctx, func(ctx context.Context) error { return inEffect(ctx, admin, objects, names) })
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// readRights reads every file that deploy/rbac applies.
func readRights() (objects []client.Object, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "rbac", "*-controller.yaml"))
	if err != nil {
		return nil, err
	}
	files = append(files, filepath.Join(root, "deploy", "rbac", "identity.yaml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			o, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
			objects = append(objects, o.(client.Object))
		}
	}
	return objects, nil
}

func inEffect(ctx context.Context, c client.Client, objects []client.Object, groups []string) error {
	for _, o := range objects {
		var namespace string
		var rules []rbacv1.PolicyRule
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules = o.Rules
		case *rbacv1.Role:
			namespace, rules = o.Namespace, o.Rules
		default:
			continue
		}
		for _, rule := range rules {
			resource, sub, _ := strings.Cut(rule.Resources[0], "/")
			asked := authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub,
				Name: strings.Join(rule.ResourceNames, ","),
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "somebody", Groups: groups, ResourceAttributes: &asked}}
			if err := c.Create(ctx, review); err != nil {
				return fmt.Errorf("review access: %w", err)
			}
			if !review.Status.Allowed {
				return fmt.Errorf("the roles of deploy/rbac are not in effect: %+v: %s", asked, review.Status.Reason)
			}
		}
	}
	return nil
}
