// Package garbagecollector_test runs the garbage collector against a real API server.
package garbagecollector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"minikcm/pkg/controllers/garbagecollector"
	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true, SecondAPIServer: true}, func(c *controlplane.Cluster) { cluster = c }))
}

const soon = 30 * time.Second

// account returns the name and the configuration of a new identity with the rights of the collector.
func account() (user string, cfg *rest.Config) {
	name := "gc-" + rand.String(8)
	return controlplane.ServiceAccount(name), cluster.ManagerConfig(name, garbagecollector.Name)
}

// Types that tests use.
var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	rcs         = schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

var kinds = map[schema.GroupVersionResource]string{
	configMaps: "ConfigMap", secrets: "Secret", pods: "Pod", namespaces: "Namespace", rcs: "ReplicationController",
	replicaSets: "ReplicaSet", deployments: "Deployment",
}

type thing struct {
	*unstructured.Unstructured
	typ schema.GroupVersionResource
}

func objects(t testing.TB, typ schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	controlplane.Must(t, err)
	return client.Resource(typ).Namespace(namespace)
}

type edit func(*unstructured.Unstructured)

func create(t testing.TB, typ schema.GroupVersionResource, namespace, name string, edits ...edit) thing {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	template := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": name}},
		"spec":     map[string]any{"terminationGracePeriodSeconds": int64(0), "containers": []any{map[string]any{"name": "c", "image": "none"}}},
	}
	switch typ {
	case pods:
		o.Object["spec"] = template["spec"]
	case rcs:
		o.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"app": name}, "template": template}
	case deployments:
		delete(template["spec"].(map[string]any), "terminationGracePeriodSeconds")
		o.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": name}}, "template": template}
	}
	o.SetAPIVersion(typ.GroupVersion().String())
	o.SetKind(kinds[typ])
	o.SetNamespace(namespace)
	o.SetName(name)
	for _, e := range edits {
		e(o)
	}
	var created *unstructured.Unstructured
	controlplane.Eventually(t, soon, func(ctx context.Context) (err error) { // a type may just have been defined
		created, err = objects(t, typ, namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return thing{created, typ}
}

// ownedBy adds references to owners.
func ownedBy(owners ...thing) edit { return refersTo(nil, owners) }

// blockedBy adds references to owners that do not go before the object.
func blockedBy(owners ...thing) edit { return refersTo(new(true), owners) }

func refersTo(blocking *bool, owners []thing) edit {
	return func(o *unstructured.Unstructured) {
		for _, owner := range owners {
			ref := owner.reference()
			ref.BlockOwnerDeletion = blocking
			refers(ref)(o)
		}
	}
}

func refers(refs ...metav1.OwnerReference) edit {
	return func(o *unstructured.Unstructured) { o.SetOwnerReferences(append(o.GetOwnerReferences(), refs...)) }
}

func finalizedBy(finalizers ...string) edit {
	return func(o *unstructured.Unstructured) { o.SetFinalizers(finalizers) }
}

func (o thing) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}
}

func (o thing) now(t testing.TB, ctx context.Context) (*unstructured.Unstructured, error) {
	t.Helper()
	got, err := objects(t, o.typ, o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case got.GetUID() != o.GetUID():
		return nil, nil
	}
	return got, nil
}

func (o thing) String() string {
	return fmt.Sprintf("%s %s/%s", o.typ.Resource, o.GetNamespace(), o.GetName())
}

func (o thing) delete(t testing.TB, policy metav1.DeletionPropagation) {
	t.Helper()
	err := objects(t, o.typ, o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, GracePeriodSeconds: new(int64(0))})
	if !apierrors.IsNotFound(err) { // the collector may be faster
		controlplane.Must(t, err)
	}
}

// patch merges metadata.
func (o thing) patch(t testing.TB, metadata map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	controlplane.Must(t, err)
	_, err = objects(t, o.typ, o.GetNamespace()).Patch(context.Background(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	controlplane.Must(t, err)
}

// letGo takes all finalizers away.
func (o thing) letGo(t testing.TB) { o.patch(t, map[string]any{"finalizers": []string{}}) }

// gone waits until objects are no more.
func gone(t testing.TB, within time.Duration, all ...thing) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		for _, o := range all {
			switch now, err := o.now(t, ctx); {
			case err != nil:
				return err
			case now != nil:
				return fmt.Errorf("%v is still there: deleted at %v, finalizers %v, owners %v", o, now.GetDeletionTimestamp(), now.GetFinalizers(), now.GetOwnerReferences())
			}
		}
		return nil
	})
}

// alive fails unless objects are there and are not being deleted.
func alive(t testing.TB, all ...thing) {
	t.Helper()
	for _, o := range all {
		now, err := o.now(t, t.Context())
		controlplane.Must(t, err)
		if now == nil {
			t.Errorf("%v is gone", o)
		} else if now.GetDeletionTimestamp() != nil {
			t.Errorf("%v is being deleted", o)
		}
	}
}

func owners(t testing.TB, within time.Duration, o thing, want ...thing) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		now, err := o.now(t, ctx)
		if err != nil || now == nil {
			return errors.Join(err, fmt.Errorf("%v: %v", o, now))
		}
		var got, wanted []types.UID
		for _, r := range now.GetOwnerReferences() {
			got = append(got, r.UID)
		}
		for _, w := range want {
			wanted = append(wanted, w.GetUID())
		}
		if !slices.Equal(got, wanted) {
			return fmt.Errorf("owners of %v are %v, want %v", o, got, wanted)
		}
		return nil
	})
}

// settled waits until a new object without owner is deleted.
func settled(t testing.TB, namespace string) {
	t.Helper()
	owner := create(t, secrets, namespace, "probe-"+rand.String(6))
	probe := create(t, secrets, namespace, owner.GetName()+"-dependent", ownedBy(owner))
	owner.delete(t, metav1.DeletePropagationBackground)
	gone(t, soon, probe)
}

// reported waits for an event about an object.
func reported(t testing.TB, o thing, reason, message string) {
	t.Helper()
	controlplane.Eventually(t, soon, func(ctx context.Context) error {
		list, err := cluster.Client(t).CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(o.GetUID())})
		if err != nil || len(list.Items) == 0 || list.Items[0].Message != message {
			return errors.Join(err, fmt.Errorf("events of %v with reason %s: %v", o, reason, list))
		}
		return nil
	})
}
