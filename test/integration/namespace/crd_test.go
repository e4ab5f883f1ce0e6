package namespace_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"minikcm/test/controlplane"
)

const crdGroup = "crd.example.com"

// custom is a type of custom resources that exists until the test ends.
type custom struct {
	definition  string
	definitions crds.Interface
	objects     dynamic.NamespaceableResourceInterface // in version v1
}

func define(t *testing.T, plural string) *custom {
	t.Helper()
	c := &custom{definition: plural + "." + crdGroup}
	var err error
	c.definitions, err = crds.NewForConfig(cluster.Config())
	check(t, err)
	kind := "Kind" + plural
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: c.definition},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crdGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: anything}},
		},
	}
	_, err = c.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		c.undefine(t)
		// Before a test defines the CRD again.
		controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
			_, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, c.definition, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is still there: %v", c.definition, err)
			}
			return nil
		})
	})
	client, err := dynamic.NewForConfig(cluster.Config())
	check(t, err)
	c.objects = client.Resource(schema.GroupVersionResource{Group: crdGroup, Version: "v1", Resource: plural})
	return c
}

func (c *custom) undefine(t *testing.T) {
	t.Helper()
	err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(cleanupContext(t), c.definition, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// make creates an object, as soon as the type is served.
func (c *custom) make(t *testing.T, ns, name string, finalizers ...string) {
	t.Helper()
	definition, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), c.definition, metav1.GetOptions{})
	check(t, err)
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": crdGroup + "/v1", "kind": definition.Spec.Names.Kind, "metadata": map[string]any{"name": name}}}
	o.SetFinalizers(finalizers)
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := c.objects.Namespace(ns).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

func TestCustomResources(t *testing.T) {
	m := start(t)
	widgets := define(t, "widgets")
	ns := create(t)
	for i := range 10 {
		var finalizers []string
		if i < 2 {
			finalizers = []string{"crd.example.com/hold"}
		}
		widgets.make(t, ns, fmt.Sprint("w-", i), finalizers...)
	}
	remove(t, ns)
	shows(t, ns, map[corev1.NamespaceConditionType]string{
		corev1.NamespaceContentRemaining:    "True SomeResourcesRemain Some resources are remaining: widgets.crd.example.com has 2 resource instances",
		corev1.NamespaceFinalizersRemaining: "crd.example.com/hold in 2 resource instances",
		"NamespaceDeletionBlocked":          "2 widgets.crd.example.com held by finalizer crd.example.com/hold (w-0, w-1)",
	})
	wantBlocked(t, m, ns, 1)
	for i := range 2 {
		release(t, schema.GroupVersionResource{Group: crdGroup, Version: "v1", Resource: "widgets"}, ns, fmt.Sprint("w-", i))
	}
	gone(t, ns, 10*time.Second)
	wantBlocked(t, m, ns, 0)
}
