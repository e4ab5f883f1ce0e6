package garbagecollector_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

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
