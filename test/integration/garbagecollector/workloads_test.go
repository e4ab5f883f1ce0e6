package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"minikcm/test/controlplane"
)

func made(t *testing.T, typ schema.GroupVersionResource, ns string, n int) (all []thing) {
	t.Helper()
	controlplane.Eventually(t, soon, func(ctx context.Context) error {
		list, err := objects(t, typ, ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != n {
			return errors.Join(err, fmt.Errorf("%d %s, want %d", len(list.Items), typ.Resource, n))
		}
		all = nil
		for i := range list.Items {
			all = append(all, thing{&list.Items[i], typ})
		}
		return nil
	})
	return all
}

// A Deployment is deleted while the Deployment and ReplicaSet controllers run.
func testDeployment(policy metav1.DeletionPropagation) func(*testing.T, string) {
	return func(t *testing.T, ns string) {
		deployment := create(t, deployments, ns, "web", func(o *unstructured.Unstructured) {
			controlplane.Must(t, unstructured.SetNestedField(o.Object, int64(3), "spec", "replicas"))
		})
		below, pods := made(t, replicaSets, ns, 1), made(t, pods, ns, 3)
		deployment.delete(t, policy)
		gone(t, soon, deployment)
		if policy != metav1.DeletePropagationOrphan {
			gone(t, soon, append(below, pods...)...)
			return
		}
		settled(t, ns)
		alive(t, append(below, pods...)...)
		owners(t, soon, below[0])
		for _, pod := range pods {
			owners(t, soon, pod, below[0])
		}
	}
}

func testANamespaceIsDeletedWithOwnersInIt(t *testing.T, _ string) {
	namespace := create(t, namespaces, "", "doomed-"+rand.String(6))
	ns := namespace.GetName()
	owner := create(t, configMaps, ns, "owner")
	middle := create(t, configMaps, ns, "middle", blockedBy(owner))
	leaf := create(t, secrets, ns, "leaf", blockedBy(middle), finalizedBy("x/y"))
	leaves := create(t, rcs, ns, "leaves-orphans", finalizedBy("x/y"))
	orphan := create(t, pods, ns, "orphan", blockedBy(leaves))
	late := create(t, configMaps, ns, "late")
	owned := create(t, configMaps, ns, "owned-by-late", blockedBy(late))
	owner.delete(t, metav1.DeletePropagationForeground)
	leaves.delete(t, metav1.DeletePropagationOrphan)
	owners(t, soon, orphan)
	namespace.delete(t, metav1.DeletePropagationBackground)
	controlplane.Eventually(t, soon, func(ctx context.Context) error {
		now, err := late.now(t, ctx)
		if err != nil || now != nil {
			return fmt.Errorf("%v is still there: %w", late, err)
		}
		return nil
	})
	leaf.letGo(t)
	leaves.letGo(t)
	gone(t, 2*soon, owner, middle, leaf, leaves, orphan, late, owned, namespace)
}
