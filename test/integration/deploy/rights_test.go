package deploy

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
	"minikcm/test/controlplane"
)

var controllers = []string{
	"replicaset-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	"namespace-controller", "endpointslice-controller", "deployment-controller", "garbage-collector-controller",
}

// roleOf reads the file with the rights of a controller.
func roleOf(t *testing.T, controller string) []byte {
	t.Helper()
	return read(t, deployDir, "rbac", controller+".yaml")
}

// TestWithoutGarbageCollector requires that the component removes the garbage collector, its rights and its account,
// and nothing else.
func TestWithoutGarbageCollector(t *testing.T) {
	const collector = "garbage-collector-controller"
	// pod-garbage-collector-controller is another controller.
	about := regexp.MustCompile(`(^|[^-\w])(generic-)?garbage-collector`)
	for with, without := range map[string]string{
		"testdata/service-accounts-deployment": "testdata/without-garbage-collector",
		filepath.Join(deployDir, "two-leases"): "testdata/without-garbage-collector-two-leases",
	} {
		t.Run(filepath.Base(without), func(t *testing.T) {
			want, wantControllers := map[string]bool{}, 0
			for _, o := range kustomize(t, with) {
				if o.GetKind() != "Deployment" {
					want[identify(o)] = !about.MatchString(identify(o))
				}
			}
			for _, h := range halves(t, kustomize(t, with)) {
				wantControllers += len(h.controllers)
			}
			for _, o := range kustomize(t, without) {
				if o.GetKind() == "Deployment" {
					continue
				}
				if !want[identify(o)] || about.MatchString(fmt.Sprint(o.Object)) {
					t.Errorf("%s is about the garbage collector", identify(o))
				}
				delete(want, identify(o))
			}
			for name, wanted := range want {
				if wanted {
					t.Errorf("%s is missing", name)
				}
			}
			gotControllers := 0
			for name, h := range halves(t, kustomize(t, without)) {
				gotControllers += len(h.controllers)
				if slices.Contains(h.controllers, collector) {
					t.Errorf("%s runs %s", name, collector)
				}
			}
			if gotControllers != wantControllers-1 {
				t.Errorf("%d controllers run, want one fewer than %d", gotControllers, wantControllers)
			}
		})
	}
}

type right struct {
	role      string
	namespace string // of the role; empty for a ClusterRole
	verb      string
	resource  string
	group     string
	name      string
}

func (r right) String() string {
	resource, sub, isSub := strings.Cut(r.resource, "/")
	s := r.verb + " " + resource
	if r.group != "" {
		s += "." + r.group
	}
	if isSub {
		s += "/" + sub
	}
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

func rights(t *testing.T, objects []*unstructured.Unstructured) []right {
	t.Helper()
	var all []right
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		for _, rule := range convert[rbacv1.ClusterRole](t, asClusterRole(o)).Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range append([]string{""}, rule.ResourceNames...)[min(1, len(rule.ResourceNames)):] {
						all = append(all, right{role: o.GetName(), namespace: o.GetNamespace(), verb: verb, resource: resource, group: rule.APIGroups[0], name: name})
					}
				}
			}
		}
	}
	return all
}

func asClusterRole(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetKind("ClusterRole")
	return o
}

func grant(t *testing.T, user string, objects []*unstructured.Unstructured, without right) {
	t.Helper()
	ours := map[string]bool{}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "Role") {
			ours[o.GetName()] = true
		}
	}
	var own []*unstructured.Unstructured
	for _, o := range objects {
		o = o.DeepCopy()
		switch o.GetKind() {
		case "ClusterRole", "Role":
			must(t, unstructured.SetNestedSlice(o.Object, rulesOf(t, o, without), "rules"))
		case "ClusterRoleBinding", "RoleBinding":
			must(t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{"kind": "User", "apiGroup": rbacv1.GroupName, "name": user}}, "subjects"))
			if role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name"); ours[role] {
				must(t, unstructured.SetNestedField(o.Object, role+"-"+user, "roleRef", "name"))
			}
		default:
			continue
		}
		o.SetName(o.GetName() + "-" + user)
		own = append(own, o)
	}
	keep(t, own...)
}

// rulesOf returns a rule for each right of the role except without.
func rulesOf(t *testing.T, role *unstructured.Unstructured, without right) (rules []any) {
	t.Helper()
	for _, r := range rights(t, []*unstructured.Unstructured{role}) {
		if r == without {
			continue
		}
		rule := map[string]any{"verbs": []any{r.verb}, "apiGroups": []any{r.group}, "resources": []any{r.resource}}
		if r.name != "" {
			rule["resourceNames"] = []any{r.name}
		}
		rules = append(rules, rule)
	}
	return rules
}

// TestMissingRightEndsTheManager removes one verb; the manager has to name exactly this one.
// TestDeployGrantsExactlyWhatIsRequired in pkg/app compares all rights.
func TestMissingRightEndsTheManager(t *testing.T) {
	const controller, user = "replicaset-controller", "without-patch-pods"
	own := parse(t, roleOf(t, controller))
	all := rights(t, own)
	r := all[slices.IndexFunc(all, func(r right) bool { return r.String() == "patch pods" })]
	grant(t, user, slices.Concat(parse(t, read(t, deployDir, "rbac", "identity.yaml")), own), r)
	// The authorizer reads roles from a cache, so at first more is missing.
	controlplane.Eventually(t, patience, func(context.Context) error {
		cmd := command.New(app.Controllers())
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		m := controlplane.StartManager(t, cmd, "--controllers="+controller, "--kubeconfig="+cluster.Kubeconfig(t, user), "--secure-port=0")
		err := m.Wait(t, time.Minute)
		if err == nil {
			t.Fatal("the manager ended without an error")
		}
		missing, _, _ := strings.Cut(consequences.ReplaceAllString(err.Error(), ""), "; grant")
		if want := fmt.Sprintf("user %s is not allowed to: %s", user, r); missing != want {
			return fmt.Errorf("the manager misses %q, want %q", missing, want)
		}
		return nil
	})
}

var consequences = regexp.MustCompile(` \([^)]*\)`)

// TestOwnerReferencesNeedFinalizers checks rights that only an admission plugin requires, for references that block
// their owner's deletion.
func TestOwnerReferencesNeedFinalizers(t *testing.T) {
	ns := cluster.Namespace(t)
	rs, err := cluster.Client(t).AppsV1().ReplicaSets(ns).Create(t.Context(), controlplane.ReplicaSet(ns, "web", 0), metav1.CreateOptions{})
	must(t, err)
	pod := controlplane.Pod(ns, "web-1", nil)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	objects := parse(t, roleOf(t, "replicaset-controller"))
	finalizers := rights(t, objects)[slices.IndexFunc(rights(t, objects), func(r right) bool { return r.resource == "replicasets/finalizers" })]
	for user, tt := range map[string]struct {
		without right
		refused string
	}{
		"owner-with":    {right{}, ""},
		"owner-without": {finalizers, "cannot set blockOwnerDeletion"},
	} {
		grant(t, user, objects, tt.without)
		client := controlplane.ClientFor(t, cluster.ConfigFor(user))
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			_, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tt.refused == "" {
				return err
			}
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				return fmt.Errorf("create a pod as %s: %v, want an error with %q", user, err, tt.refused)
			}
			return nil
		})
	}
}
