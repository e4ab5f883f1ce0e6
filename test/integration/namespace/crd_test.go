package namespace_test

import (
	"context"
	"testing"
	"time"

	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"minikcm/test/controlplane"
)

var widgets = schema.GroupVersionResource{Group: "crd.example.com", Version: "v1", Resource: "widgets"}

// defineWidgets defines a type of custom resources until the test ends.
func defineWidgets(t *testing.T) {
	t.Helper()
	client, err := crds.NewForConfig(cluster.Config())
	check(t, err)
	definitions, widget := client.ApiextensionsV1().CustomResourceDefinitions(), controlplane.CustomType(widgets.Group, widgets.Resource, "Widget")
	// An earlier definition may not be gone yet.
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := definitions.Create(ctx, widget, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { check(t, definitions.Delete(cleanupContext(t), widget.Name, metav1.DeleteOptions{})) })
}

// makeWidget creates a custom resource, as soon as the type is served.
func makeWidget(t *testing.T, ns, name string, finalizers ...string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	check(t, err)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": name},
	}}
	o.SetFinalizers(finalizers)
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := client.Resource(widgets).Namespace(ns).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}
