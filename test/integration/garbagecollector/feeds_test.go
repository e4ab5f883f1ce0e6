package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"

	"minikcm/test/controlplane"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func newType() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gc-" + rand.String(6) + ".example.com", Version: "v1", Resource: "widgets"}
}

func defineType(t testing.TB, typ schema.GroupVersionResource) {
	t.Helper()
	cluster.Create(t, controlplane.CustomType(typ.Group, typ.Resource, "Widget"))
	t.Cleanup(func() { undefineType(t, typ) })
}

func undefineType(t testing.TB, typ schema.GroupVersionResource) {
	t.Helper()
	name := typ.GroupResource().String()
	if err := objects(t, definitions, "").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	controlplane.Eventually(t, soon, func(context.Context) error {
		_, err := objects(t, definitions, "").Get(context.Background(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("definition %s is still there: %v", name, err)
		}
		return nil
	})
}

// newWidget creates an object of a custom type, as soon as that is served.
func newWidget(t testing.TB, typ schema.GroupVersionResource, namespace, name string, edits ...edit) thing {
	t.Helper()
	edits = append([]edit{func(o *unstructured.Unstructured) { o.SetKind("Widget") }}, edits...)
	return create(t, typ, namespace, name, edits...)
}

func collectible(t testing.TB) ([]string, error) {
	t.Helper()
	lists, err := cluster.Client(t).Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	verbs := discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}
	types, err := discovery.GroupVersionResources(discovery.FilteredBy(verbs, lists))
	var names []string
	for typ := range types {
		if typ.Resource != "events" {
			names = append(names, typ.GroupResource().String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// TestEveryTypeHasOneStream requires one watch for each type, and no list.
func TestEveryTypeHasOneStream(t *testing.T) {
	for _, controllers := range []string{"garbagecollector", "*,garbagecollector"} {
		t.Run(controllers, func(t *testing.T) {
			account := "gc-" + rand.String(8)
			user := controlplane.ServiceAccount(account)
			manager := start(t, cluster.ManagerConfig(account), controllers)
			var want []string
			// A watch without response may be opened again, so only open streams count.
			streams := func() map[string]int {
				log, open := cluster.AuditLog(t), map[string]int{}
				for n, stage := range map[int]controlplane.AuditMatch{1: controlplane.Received, -1: controlplane.Completed} {
					for _, e := range log.Select(controlplane.ByUser(user), controlplane.ByVerb("watch"), stage) {
						open[schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}.String()] += n
					}
				}
				return open
			}
			var since time.Time
			controlplane.Eventually(t, 2*soon, func(context.Context) (err error) {
				if want, err = collectible(t); err != nil || len(want) < 30 {
					return errors.Join(err, fmt.Errorf("discovery shows only %v", want))
				}
				open := streams()
				for _, name := range want {
					if open[name] != 1 {
						since = time.Time{}
						return fmt.Errorf("%d streams of %s are open", open[name], name)
					}
				}
				if since.IsZero() {
					since = time.Now()
				}
				if lasted := time.Since(since); lasted < 2*time.Second {
					return fmt.Errorf("one stream of each type has been open for %v", lasted)
				}
				return nil
			})
			for name, n := range streams() {
				if n > 0 && !slices.Contains(want, name) {
					t.Errorf("%s was watched", name)
				}
			}
			manager.Stop(t)
			for _, e := range cluster.AuditLog(t, controlplane.ByUser(user), controlplane.ByVerb("list"), controlplane.Completed) {
				if strings.Contains(e.UserAgent, "feeds") || strings.Contains(e.UserAgent, "shared-informers") {
					t.Errorf("%s was listed as well as streamed", e.ObjectRef.Resource)
				}
			}
		})
	}
}

func testATypeIsCollectedAsSoonAsItIsDefined(t *testing.T, ns string) {
	typ := newType()
	for round := range 2 {
		defineType(t, typ)
		owner := newWidget(t, typ, ns, "owner")
		inside, outside := newWidget(t, typ, ns, "dependent", blockedBy(owner)), create(t, configMaps, ns, fmt.Sprint("dependent-", round), blockedBy(owner))
		core := create(t, configMaps, ns, fmt.Sprint("owner-", round))
		ofCore := newWidget(t, typ, ns, "of-core", ownedBy(core))
		owner.delete(t, metav1.DeletePropagationForeground)
		core.delete(t, metav1.DeletePropagationForeground)
		gone(t, soon, inside, outside, owner, core, ofCore)
		left := newWidget(t, typ, ns, "owner-that-goes-with-its-type")
		last := create(t, configMaps, ns, fmt.Sprint("last-", round), ownedBy(left))
		settled(t, ns)
		undefineType(t, typ)
		gone(t, soon, left, last)
	}
}
