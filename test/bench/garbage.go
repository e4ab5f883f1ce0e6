package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	garbageMaps, garbagePods = 1_000, 1_000

	customGroup                  = "bench.example.com"
	collectorAgent               = "generic-garbage-collector"
	memoryPayload                = 4_000 // bytes of a ConfigMap
	idleAfterFill                = time.Minute
	typesOfMemory, objectsOfEach = 10, 5_000 // 40 % of 50,000 objects
)

var (
	dependentsGone = metric{"2,000 dependents gone", "s"}
	dependentsCPU  = metric{"2,000 dependents, manager CPU", "s"}
	dependentsAPI  = metric{"2,000 dependents, API server CPU", "s"}
	perDependent   = metric{"requests per dependent", ""}
)

func collecting(e *auditv1.Event) bool {
	return e.User.Username == managerUser && e.Verb != "watch" && strings.HasSuffix(e.UserAgent, "/"+collectorAgent) && e.ObjectRef != nil && e.ObjectRef.Namespace == benchNamespace
}

func (r *rig) configMap(ctx context.Context, name string, finalizers []string, owners ...metav1.OwnerReference) (*corev1.ConfigMap, error) {
	m, err := r.client.CoreV1().ConfigMaps(benchNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners, Finalizers: finalizers},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create ConfigMap: %w", err)
	}
	return m, nil
}

func ownedBy(m *corev1.ConfigMap, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: m.Name, UID: m.UID, BlockOwnerDeletion: &blocking}
}

// dependents makes so many ConfigMaps of an owner.
func (r *rig) dependents(ctx context.Context, owner *corev1.ConfigMap, prefix string, n int) error {
	return inParallel(ctx, writers, n, func(ctx context.Context, i int) error {
		_, err := r.configMap(ctx, fmt.Sprintf("%s-%d", prefix, i), nil, ownedBy(owner, true))
		return err
	})
}

// mixedDependents makes 1,000 ConfigMaps and 1,000 pods on no node.
func (r *rig) mixedDependents(ctx context.Context, ref metav1.OwnerReference) error {
	return inParallel(ctx, writers, garbageMaps+garbagePods, func(ctx context.Context, i int) error {
		if i < garbageMaps {
			_, err := r.configMap(ctx, fmt.Sprintf("garbage-%d", i), nil, ref)
			return err
		}
		pod := controlplane.Pod(benchNamespace, fmt.Sprintf("garbage-%d", i), nil, func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{ref} })
		if _, err := r.client.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
		return nil
	})
}

func (r *rig) vanished(ctx context.Context, maps, pods int, do func() error) (time.Time, error) {
	of, err := watchFromNow(ctx, r.client.CoreV1().ConfigMaps(benchNamespace), metav1.ListOptions{})
	if err != nil {
		return time.Time{}, err
	}
	defer of.Stop()
	alsoOf, err := r.watchPods(ctx, benchNamespace)
	if err != nil {
		return time.Time{}, err
	}
	defer alsoOf.Stop()
	if err := do(); err != nil {
		return time.Time{}, err
	}
	end, err := follow(ctx, of, nth(maps, watch.Deleted))
	if err != nil || pods == 0 {
		return end, err
	}
	other, err := follow(ctx, alsoOf, nth(pods, watch.Deleted))
	if other.After(end) {
		end = other
	}
	return end, err
}

func (r *rig) deleteMap(ctx context.Context, name string, policy metav1.DeletionPropagation) error {
	if err := r.client.CoreV1().ConfigMaps(benchNamespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return fmt.Errorf("delete owner: %w", err)
	}
	return nil
}

// measureGarbage deletes an owner of 2,000 dependents.
func measureGarbage(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.mixedDependents(ctx, ownedBy(owner, true)), pause(ctx, settled)); err != nil {
		return nil, err
	}
	all, requests, err := r.counted(ctx, m, "garbage", func() (time.Time, error) {
		return r.vanished(ctx, garbageMaps+1, garbagePods, func() error { return r.deleteMap(ctx, owner.Name, metav1.DeletePropagationBackground) })
	})
	if err != nil {
		return nil, err
	}
	return []reading{
		{dependentsGone, all.wall}, {dependentsCPU, all.manager}, {dependentsAPI, all.apiServer}, {perDependent, requests / (garbageMaps + garbagePods)},
	}, nil
}

func (r *rig) counted(ctx context.Context, m *manager, name string, work func() (time.Time, error)) (effort, float64, error) {
	before, err := r.cluster.ReadAuditLog(collecting)
	if err != nil {
		return effort{}, 0, err
	}
	e, err := r.effort(ctx, m, name, work)
	if err != nil {
		return effort{}, 0, err
	}
	if err := pause(ctx, stragglers); err != nil {
		return effort{}, 0, err
	}
	after, err := r.cluster.ReadAuditLog(collecting)
	return e, float64(len(after) - len(before)), err
}

// custom is a type of custom resources.
type custom struct {
	typ  schema.GroupVersionResource
	kind string
}

func (r *rig) define(ctx context.Context, plural string, edits ...func(*apiextensionsv1.CustomResourceDefinition)) (custom, error) {
	t := custom{schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: plural}, "Kind" + plural}
	client, err := crds.NewForConfig(r.cluster.Config())
	if err != nil {
		return t, fmt.Errorf("build a client: %w", err)
	}
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + customGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: customGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: t.kind, ListKind: t.kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: anything}},
		},
	}
	for _, edit := range edits {
		edit(crd)
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return t, fmt.Errorf("define a type: %w", err)
	}
	objects, err := r.objects(t)
	if err != nil {
		return t, err
	}
	return t, poll(ctx, statusPeriod, func() (bool, error) {
		_, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func (r *rig) objects(t custom) (dynamic.ResourceInterface, error) {
	resource, err := r.resource(t)
	if err != nil {
		return nil, err
	}
	return resource.Namespace(benchNamespace), nil
}

func (r *rig) resource(t custom) (dynamic.NamespaceableResourceInterface, error) {
	cfg := r.cluster.Config()
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build a client: %w", err)
	}
	return client.Resource(t.typ), nil
}

func (t custom) object(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(t.typ.GroupVersion().String())
	o.SetKind(t.kind)
	o.SetName(name)
	o.SetOwnerReferences(owners)
	return o
}

// manyObjects creates 50,000 objects of 13 types, seven of ten with an owner.
func manyObjects(ctx context.Context, r *rig) error {
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return err
	}
	types := make([]custom, typesOfMemory)
	for i := range types {
		if types[i], err = r.define(ctx, fmt.Sprintf("things%d", i)); err != nil {
			return err
		}
	}
	objects := make([]dynamic.ResourceInterface, len(types))
	for i, t := range types {
		if objects[i], err = r.objects(t); err != nil {
			return err
		}
	}
	each := len(types) * objectsOfEach / 5
	return inParallel(ctx, writers, 5*each, func(ctx context.Context, i int) (err error) {
		var refs []metav1.OwnerReference
		if i%10 < 7 {
			refs = []metav1.OwnerReference{ownedBy(owner, true)}
		}
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i), OwnerReferences: refs}
		switch i / each {
		case 0:
			pod := controlplane.Pod(benchNamespace, meta.Name, map[string]string{"app": "bench"})
			pod.OwnerReferences = refs
			_, err = r.client.CoreV1().Pods(benchNamespace).Create(ctx, pod, metav1.CreateOptions{})
		case 1:
			_, err = r.client.CoreV1().ConfigMaps(benchNamespace).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: meta, Data: map[string]string{"config": strings.Repeat("x", memoryPayload)},
			}, metav1.CreateOptions{})
		case 2:
			_, err = r.client.CoreV1().Secrets(benchNamespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		default:
			n := i % len(types)
			_, err = objects[n].Create(ctx, types[n].object(meta.Name, refs...), metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("create object %d: %w", i, err)
		}
		return nil
	})
}
