package garbagecollector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
)

const crdGroup = "gc.example.com"

// byNamePrefix matches requests about objects whose names begin so.
func byNamePrefix(prefix string) controlplane.AuditMatch {
	return func(e *auditv1.Event) bool { return e.ObjectRef != nil && strings.HasPrefix(e.ObjectRef.Name, prefix) }
}

// custom is a type of custom resources that exists until the test ends.
type custom struct {
	name    string // of the definition
	typ     schema.GroupVersionResource
	kind    string
	clients crds.Interface
}

func define(t *testing.T, plural string, edits ...func(*apiextensionsv1.CustomResourceDefinition)) custom {
	t.Helper()
	c := custom{name: plural + "." + crdGroup, typ: schema.GroupVersionResource{Group: crdGroup, Version: "v1", Resource: plural}, kind: "Kind" + plural}
	var err error
	c.clients, err = crds.NewForConfig(cluster.Config())
	check(t, err)
	anything := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: c.name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crdGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: c.kind, ListKind: c.kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: anything}},
		},
	}
	for _, e := range edits {
		e(crd)
	}
	controlplane.Eventually(t, soon, func(ctx context.Context) error { // one of this name may be on its way out
		_, err := c.clients.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { c.undefine(t) })
	return c
}

// undefine deletes the definition, and with it all objects.
func (c custom) undefine(t *testing.T) {
	t.Helper()
	err := c.clients.ApiextensionsV1().CustomResourceDefinitions().Delete(cleanupContext(t), c.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func (c custom) make(t *testing.T, ns, name string, edits ...edit) thing {
	t.Helper()
	kind := func(o *unstructured.Unstructured) { o.SetKind(c.kind) }
	return create(t, c.typ, ns, name, append([]edit{kind}, edits...)...)
}

// Custom resources own each other and objects of the core, and are owned by those, right after their type was made.
func testCustomResourcesOwnAndAreOwned(t *testing.T, ns string) {
	settled(t, ns)
	made := time.Now()
	c := define(t, "mixeds")
	customOwner, coreOwner := c.make(t, ns, "owner"), create(t, configMaps, ns, "owner")
	first, second := c.make(t, ns, "of-custom", ownedBy(customOwner)), create(t, secrets, ns, "of-custom", ownedBy(customOwner))
	third := c.make(t, ns, "of-core", ownedBy(coreOwner))
	customOwner.delete(t, metav1.DeletePropagationForeground)
	coreOwner.delete(t, metav1.DeletePropagationForeground)
	gone(t, soon, customOwner, coreOwner, first, second, third)
	t.Logf("done %v after the type was made", time.Since(made).Round(time.Millisecond))
}

// A CustomResourceDefinition is deleted, and with it owners that nobody can ask for any more. What they own goes, and so again when there is
// another type of the same name.
func testDependentsGoWithTheTypeOfTheirOwners(t *testing.T, ns string) {
	for round := range 2 {
		c := define(t, "vanishings")
		var leave []thing
		for n := range 20 {
			owner := c.make(t, ns, fmt.Sprint("owner-", n))
			leave = append(leave, owner, create(t, configMaps, ns, fmt.Sprintf("dependent-%d-%d", round, n), ownedBy(owner)))
		}
		settled(t, ns)
		c.undefine(t)
		gone(t, 2*soon, leave...)
	}
}

// The conversion webhook of a type does not answer: its objects cannot be listed in the version that is preferred. Others do not have to wait for that, and
// what holds an owner is found in the version that is stored.
func TestATypeThatCannotBeListedHoldsUpNobodyElse(t *testing.T) {
	ns := cluster.Namespace(t)
	address := closedPort(t)
	c := define(t, "brokens", func(crd *apiextensionsv1.CustomResourceDefinition) {
		old := crd.Spec.Versions[0]
		old.Name = "v1beta1"
		crd.Spec.Versions[0].Storage = false // what is stored is not what is asked for
		crd.Spec.Versions = append(crd.Spec.Versions, old)
	})
	waiting, leaving := create(t, configMaps, ns, "waiting"), create(t, configMaps, ns, "leaving")
	held := c.make(t, ns, "of-waiting", blockedBy(waiting))
	c.make(t, ns, "of-leaving", ownedBy(leaving))
	definitions := c.clients.ApiextensionsV1().CustomResourceDefinitions()
	controlplane.Eventually(t, soon, func(ctx context.Context) error {
		crd, err := definitions.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		url := "https://" + address + "/convert"
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"},
			},
		}
		_, err = definitions.Update(ctx, crd, metav1.UpdateOptions{})
		return err
	})
	run := start(t, nil)
	owner := create(t, rcs, ns, "owner")
	pod := create(t, pods, ns, "pod", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	begun := time.Now()
	gone(t, soon, owner, pod)
	t.Logf("gone after %v", time.Since(begun).Round(time.Millisecond))
	controlplane.Eventually(t, soon, func(context.Context) error {
		if failing := run.metric(t, "garbagecollector_type_failing", `resource="brokens"`); failing != 1 {
			return fmt.Errorf("garbagecollector_type_failing is %v for the type, want 1", failing)
		}
		return nil
	})
	waiting.delete(t, metav1.DeletePropagationForeground)
	leaving.delete(t, metav1.DeletePropagationOrphan)
	gone(t, 2*soon, waiting, leaving, held)
	c.undefine(t)
}
