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
	"k8s.io/apimachinery/pkg/runtime"

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

// TestWithoutGarbageCollector requires that the component removes the garbage collector, its rights and its account, and
// nothing else.
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
	rule      int
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
		for i, rule := range convert[rbacv1.ClusterRole](t, asClusterRole(o)).Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range append([]string{""}, rule.ResourceNames...)[min(1, len(rule.ResourceNames)):] {
						all = append(all, right{role: o.GetName(), namespace: o.GetNamespace(), rule: i, verb: verb, resource: resource, group: rule.APIGroups[0], name: name})
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

func grant(t *testing.T, user string, objects []*unstructured.Unstructured, without *right) {
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
			if without != nil && o.GetName() == without.role && o.GetNamespace() == without.namespace {
				take(t, o, *without)
			}
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
	newApplier(t).keep(t, own...)
}

func take(t *testing.T, role *unstructured.Unstructured, r right) {
	t.Helper()
	rules := convert[rbacv1.ClusterRole](t, asClusterRole(role)).Rules
	rest := rules[r.rule].DeepCopy()
	rest.Verbs = slices.DeleteFunc(rest.Verbs, func(v string) bool { return v == r.verb })
	rest.Resources = []string{r.resource}
	named := rules[r.rule].DeepCopy()
	named.Verbs, named.Resources = []string{r.verb}, rest.Resources
	named.ResourceNames = slices.DeleteFunc(named.ResourceNames, func(s string) bool { return s == r.name })
	others := &rules[r.rule]
	others.Resources = slices.DeleteFunc(others.Resources, func(s string) bool { return s == r.resource })
	rules = append(rules, *rest)
	if len(named.ResourceNames) > 0 {
		rules = append(rules, *named)
	}
	kept := slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 || len(r.Resources) == 0 })
	var list []any
	for i := range kept {
		rule, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&kept[i])
		must(t, err)
		list = append(list, rule)
	}
	must(t, unstructured.SetNestedSlice(role.Object, list, "rules"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingRightEndsTheManager removes one verb; the manager has to name exactly this one.
// TestDeployGrantsExactlyWhatIsRequired in pkg/app compares all rights.
func TestMissingRightEndsTheManager(t *testing.T) {
	const controller, user = "replicaset-controller", "without-patch-pods"
	own := parse(t, roleOf(t, controller))
	all := rights(t, own)
	r := all[slices.IndexFunc(all, func(r right) bool { return r.String() == "patch pods" })]
	grant(t, user, slices.Concat(parse(t, read(t, deployDir, "rbac", "identity.yaml")), own), &r)
	// The authorizer reads roles from a cache, so at first more is missing.
	controlplane.Eventually(t, patience, func(context.Context) error {
		said := missing(t, cluster.Kubeconfig(t, user), time.Minute, "--controllers="+controller)
		if said == nil {
			t.Fatalf("the manager works without the right to %s", r)
		}
		if len(said) != 1 || !slices.Equal(said[user], []string{r.String()}) {
			return fmt.Errorf("the manager misses %q, want %s by %s", said, r, user)
		}
		return nil
	})
}

func missing(t *testing.T, kubeconfig string, while time.Duration, args ...string) map[string][]string {
	t.Helper()
	cmd := command.New(app.Controllers())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(io.Discard)
	m := controlplane.StartManager(t, cmd, append(args, "--kubeconfig="+kubeconfig, "--secure-port=0")...)
	select {
	case <-m.Done():
	case <-time.After(while):
		m.Stop(t)
		return nil
	}
	err := m.Wait(t, time.Second)
	if err == nil {
		t.Fatal("manager ended by itself")
	}
	said := map[string][]string{}
	text, _, _ := strings.Cut(consequences.ReplaceAllString(err.Error(), ""), "; grant")
	for part := range strings.SplitSeq(text, "; ") {
		user, list, found := strings.Cut(strings.TrimPrefix(part, "user "), " is not allowed to: ")
		if !found {
			t.Fatal(err)
		}
		said[user] = strings.Split(list, ", ")
	}
	return said
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
		without *right
		refused string
	}{
		"owner-with":    {nil, ""},
		"owner-without": {&finalizers, "cannot set blockOwnerDeletion"},
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
