package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

const (
	passing     = "passing-" // prefix of namespaces that come and go
	passingMost = 4
)

var widgets = schema.GroupVersionResource{Group: "chaos.example.com", Version: "v1", Resource: "widgets"}

func isPassing(name string) bool { return strings.HasPrefix(name, passing) }

func (w *workload) makeNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", passing, w.draw.IntN(passingMost))}}
	made, err := w.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	w.note(ns.Name, "namespace created, uid %s", made.UID)
	return w.fill(ctx, ns.Name)
}

func (w *workload) someNamespace() (string, bool) {
	ns, ok := pick(current(w.histories.namespaces, func(n *corev1.Namespace) bool {
		return isPassing(n.Name) && n.DeletionTimestamp == nil
	}), w.draw)
	if !ok {
		return "", false
	}
	return ns.Name, true
}

func (w *workload) fillNamespace(ctx context.Context) error {
	if name, ok := w.someNamespace(); ok {
		return w.fill(ctx, name)
	}
	return nil
}

func (w *workload) fill(ctx context.Context, namespace string) error {
	meta := metav1.ObjectMeta{GenerateName: "thing-"}
	if w.draw.IntN(3) == 0 {
		meta.Finalizers = []string{finalizer}
	}
	core := w.client.CoreV1()
	switch w.draw.IntN(4) {
	case 0:
		_, err := core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		return err
	case 1:
		_, err := core.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		return err
	case 2:
		w.pods++
		pod := controlplane.Pod(namespace, fmt.Sprintf("loose-%d", w.pods), nil, func(p *corev1.Pod) { p.Finalizers = meta.Finalizers })
		_, err := core.Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	default:
		return w.createSet(ctx, w.set(namespace, fmt.Sprintf("set-%d", w.draw.IntN(3)), int32(1+w.draw.IntN(4))))
	}
}

func (w *workload) deleteNamespace(ctx context.Context) error {
	name, ok := w.someNamespace()
	if !ok {
		return nil
	}
	w.note(name, "namespace deleted by the user")
	return w.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
}

func (w *workload) unpinContent(ctx context.Context) error {
	unpin, core := []byte(`{"metadata":{"finalizers":null}}`), w.client.CoreV1()
	for i := range passingMost {
		name := fmt.Sprintf("%s%d", passing, i)
		maps, err := core.ConfigMaps(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range maps.Items {
			if slices.Contains(m.Finalizers, finalizer) {
				if _, err := core.ConfigMaps(name).Patch(ctx, m.Name, types.MergePatchType, unpin, metav1.PatchOptions{}); gone(err) != nil {
					return err
				}
			}
		}
		secrets, err := core.Secrets(name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range secrets.Items {
			if slices.Contains(s.Finalizers, finalizer) {
				if _, err := core.Secrets(name).Patch(ctx, s.Name, types.MergePatchType, unpin, metav1.PatchOptions{}); gone(err) != nil {
					return err
				}
			}
		}
	}
	return w.unpinPods(ctx)
}

func (w *workload) addType(ctx context.Context) error {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: widgets.Resource, Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	w.note("", "type %s added", crd.Name)
	_, err := w.extension.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
	return err
}

func (w *workload) removeType(ctx context.Context) error {
	w.note("", "type %s removed", widgets.GroupResource())
	return w.extension.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, widgets.GroupResource().String(), metav1.DeleteOptions{})
}

func (w *workload) makeWidget(ctx context.Context) error {
	name, ok := w.someNamespace()
	if !ok {
		return nil
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"generateName": "widget-"},
	}}
	_, err := w.dynamic.Resource(widgets).Namespace(name).Create(ctx, widget, metav1.CreateOptions{})
	return err
}
