package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

const group = "shadow.example.com"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	// recorded are the types of the churn that are always there.
	recorded = []schema.GroupVersionResource{
		configMaps, secrets, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "namespaces"},
		{Group: "apps", Version: "v1", Resource: "replicasets"}, {Group: "apps", Version: "v1", Resource: "deployments"},
	}
	policies = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
)

// churn makes and deletes until its context ends. Nothing has a name twice.
type churn struct {
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	crds     crds.Interface
	newType  func(context.Context, schema.GroupVersionResource) error // records it
	seed     uint64
	serial   atomic.Int64
	made     atomic.Int64
	problems atomic.Int64
	last     atomic.Pointer[string]
}

// run plays several users at once.
func (c *churn) run(ctx context.Context) {
	var all sync.WaitGroup
	for n, user := range []func(context.Context, *rand.Rand) error{
		c.deployments, c.deployments, c.trees, c.trees, c.trees, c.adopted, c.strays, c.customTypes, c.namespaces,
	} {
		draw := rand.New(rand.NewPCG(c.seed, uint64(n)))
		all.Go(func() {
			for pause(ctx, time.Duration(500+draw.IntN(2000))*time.Millisecond) {
				if err := user(ctx, draw); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
					text := err.Error()
					c.last.Store(&text)
					c.problems.Add(1)
				}
			}
		})
	}
	all.Wait()
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (c *churn) name(prefix string) string { return fmt.Sprintf("%s-%d", prefix, c.serial.Add(1)) }

// object makes one of a type.
func (c *churn) object(ctx context.Context, typ schema.GroupVersionResource, kind, namespace, prefix string, owners ...metav1.OwnerReference) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(typ.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(c.name(prefix))
	o.SetOwnerReferences(owners)
	c.made.Add(1)
	return c.dynamic.Resource(typ).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{})
}

func refer(o metav1.Object, apiVersion, kind string, blocking bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: &blocking}
}

func (c *churn) delete(ctx context.Context, typ schema.GroupVersionResource, o metav1.Object, policy metav1.DeletionPropagation) error {
	return c.dynamic.Resource(typ).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
}

// deployments rolls one out, with configuration of its own, and deletes it in one of three ways.
func (c *churn) deployments(ctx context.Context, draw *rand.Rand) error {
	name := c.name("deployment")
	d := controlplane.Deployment(metav1.NamespaceDefault, name, int32(1+draw.IntN(5)))
	d.Spec.RevisionHistoryLimit = new(int32(1))
	d, err := c.client.AppsV1().Deployments(d.Namespace).Create(ctx, d, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for range 1 + draw.IntN(3) {
		if _, err := c.object(ctx, configMaps, "ConfigMap", d.Namespace, name, refer(d, "apps/v1", "Deployment", draw.IntN(2) == 0)); err != nil {
			return err
		}
	}
	pause(ctx, time.Duration(1+draw.IntN(4))*time.Second)
	for n := range draw.IntN(4) {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/main:v%d"}]}}}}`, n)
		if _, err := c.client.AppsV1().Deployments(d.Namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		pause(ctx, time.Second)
	}
	policy := policies[draw.IntN(3)]
	if err := c.client.AppsV1().Deployments(d.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil || policy != metav1.DeletePropagationOrphan {
		return err
	}
	pause(ctx, 5*time.Second)
	return c.client.AppsV1().ReplicaSets(d.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
}

// trees makes an owner, its dependents and theirs, and deletes the owner, sometimes in another way half-way.
func (c *churn) trees(ctx context.Context, draw *rand.Rand) error {
	root, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "root")
	if err != nil {
		return err
	}
	for range 1 + draw.IntN(5) {
		middle, err := c.object(ctx, secrets, "Secret", metav1.NamespaceDefault, "middle", refer(root, "v1", "ConfigMap", draw.IntN(2) == 0))
		if err != nil {
			return err
		}
		for range draw.IntN(12) {
			if _, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "leaf", refer(middle, "v1", "Secret", draw.IntN(2) == 0)); err != nil {
				return err
			}
		}
	}
	if draw.IntN(2) == 0 {
		pause(ctx, time.Duration(draw.IntN(3000))*time.Millisecond)
	}
	if err := c.delete(ctx, configMaps, root, policies[draw.IntN(3)]); err != nil || draw.IntN(4) > 0 {
		return err
	}
	return c.delete(ctx, configMaps, root, policies[draw.IntN(3)])
}

// adopted has two owners, of which one goes at once and the other minutes later, so that it must stay in between.
func (c *churn) adopted(ctx context.Context, draw *rand.Rand) error {
	first, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "first")
	if err != nil {
		return err
	}
	second, err := c.object(ctx, secrets, "Secret", metav1.NamespaceDefault, "second")
	if err != nil {
		return err
	}
	for range 3 {
		_, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "shared", refer(first, "v1", "ConfigMap", true), refer(second, "v1", "Secret", true))
		if err != nil {
			return err
		}
	}
	if err := c.delete(ctx, configMaps, first, policies[draw.IntN(2)]); err != nil {
		return err
	}
	if draw.IntN(3) == 0 { // the rest of them live on to the end of the run
		time.AfterFunc(time.Duration(90+draw.IntN(60))*time.Second, func() { _ = c.delete(ctx, secrets, second, metav1.DeletePropagationBackground) })
	}
	return nil
}

// strays refer to owners that never were, to a namesake of one that is gone, and to kinds that nobody serves.
func (c *churn) strays(ctx context.Context, draw *rand.Rand) error {
	owner, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "namesake")
	if err != nil {
		return err
	}
	ref := refer(owner, "v1", "ConfigMap", false)
	switch draw.IntN(3) {
	case 0:
		ref.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", draw.Uint32(), draw.Uint32()))
	case 1:
		ref.Name, ref.UID = "never", types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", draw.Uint32(), draw.Uint32()))
	case 2:
		ref.APIVersion, ref.Kind = "nobody.example.com/v1", "Nothing"
	}
	_, err = c.object(ctx, secrets, "Secret", metav1.NamespaceDefault, "stray", ref)
	return err
}

// customTypes defines one, has its objects own and be owned, and takes it away with owners that still are.
func (c *churn) customTypes(ctx context.Context, draw *rand.Rand) error {
	plural := fmt.Sprintf("things%d", c.serial.Add(1))
	typ := schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
	kind := "Kind" + plural
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := definitions.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: anything}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for pause(ctx, 100*time.Millisecond) {
		if _, err := c.dynamic.Resource(typ).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{}); err == nil {
			break
		}
	}
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer time.AfterFunc(time.Minute, stop) // what is left of it is seen to go, also when the churn is over
	if err := c.newType(recording, typ); err != nil {
		return err
	}
	var owners []*unstructured.Unstructured
	for range 2 + draw.IntN(4) {
		owner, err := c.object(ctx, typ, kind, metav1.NamespaceDefault, "custom")
		if err != nil {
			return err
		}
		owners = append(owners, owner)
		ref := refer(owner, typ.GroupVersion().String(), kind, draw.IntN(2) == 0)
		for range draw.IntN(4) {
			if _, err := c.object(ctx, typ, kind, metav1.NamespaceDefault, "of-custom", ref); err != nil {
				return err
			}
			if _, err := c.object(ctx, configMaps, "ConfigMap", metav1.NamespaceDefault, "of-custom", ref); err != nil {
				return err
			}
		}
	}
	pause(ctx, time.Duration(draw.IntN(40))*time.Second)
	for _, owner := range owners[1:] {
		if err := c.delete(ctx, typ, owner, policies[draw.IntN(3)]); err != nil {
			return err
		}
	}
	pause(ctx, time.Duration(draw.IntN(10))*time.Second)
	return definitions.Delete(ctx, crd.Name, metav1.DeleteOptions{})
}

// namespaces makes one with owners in it, and deletes it in the middle of their deletion.
func (c *churn) namespaces(ctx context.Context, draw *rand.Rand) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.name("namespace")}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	var owners []*unstructured.Unstructured
	for range 4 {
		owner, err := c.object(ctx, configMaps, "ConfigMap", ns.Name, "owner")
		if err != nil {
			return err
		}
		owners = append(owners, owner)
		for range draw.IntN(6) {
			if _, err := c.object(ctx, secrets, "Secret", ns.Name, "dependent", refer(owner, "v1", "ConfigMap", true)); err != nil {
				return err
			}
		}
	}
	pause(ctx, time.Duration(draw.IntN(4))*time.Second)
	for _, owner := range owners[:draw.IntN(4)] {
		if err := c.delete(ctx, configMaps, owner, policies[draw.IntN(3)]); err != nil {
			return err
		}
	}
	return c.client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{})
}
