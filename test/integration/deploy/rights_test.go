package deploy

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var controllers = []string{
	"replicaset-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	"namespace-controller", "endpointslice-controller", "deployment-controller", "garbage-collector-controller",
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
