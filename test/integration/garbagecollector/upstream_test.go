package garbagecollector_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestSharedCollector runs the cases of kube-controller-manager v1.37's tests and all tests that need only default
// flags. They share the collector and the controllers of workloads and namespaces.
func TestSharedCollector(t *testing.T) {
	startProcess(t)
	controlplane.StartProcess(t, "--kubeconfig="+cluster.ManagerKubeconfig(t, "others"), "--secure-port=0", "--leader-elect=false",
		"--controllers=replicaset,deployment,namespace")
	for name, test := range map[string]func(t *testing.T, ns string){
		"only blocking dependents hold their owner": func(t *testing.T, ns string) {
			free, held := create(t, rcs, ns, "free"), create(t, rcs, ns, "held")
			no := free.reference()
			no.BlockOwnerDeletion = new(false)
			unset, unblocking := create(t, pods, ns, "unset", ownedBy(free), finalizedBy("x/y")), create(t, pods, ns, "false", refers(no), finalizedBy("x/y"))
			blocking := create(t, pods, ns, "true", blockedBy(held), finalizedBy("x/y"))
			for _, owner := range []thing{free, held} {
				owner.delete(t, metav1.DeletePropagationForeground)
			}
			gone(t, soon, free)
			settled(t, ns)
			if now, err := held.now(t, t.Context()); err != nil || now == nil {
				t.Fatalf("the owner went before its dependent: %v", err)
			}
			for _, pod := range []thing{unset, unblocking, blocking} {
				pod.letGo(t)
			}
			gone(t, soon, held, unset, unblocking, blocking)
		},
		"a second foreground deletion of an owner with another finalizer is finished, too": func(t *testing.T, ns string) {
			owner := create(t, rcs, ns, "owner", finalizedBy("x/y"))
			for range 2 {
				owner.delete(t, metav1.DeletePropagationForeground)
				controlplane.Eventually(t, soon, func(ctx context.Context) error {
					now, err := owner.now(t, ctx)
					if err != nil || len(now.GetFinalizers()) != 1 {
						return fmt.Errorf("%v: %w", now.GetFinalizers(), err)
					}
					return nil
				})
			}
			owner.letGo(t)
			gone(t, soon, owner)
		},
		"references into another namespace count for nothing, and users are told": func(t *testing.T, ns string) {
			there := cluster.Namespace(t)
			owner := create(t, configMaps, there, "owner")
			own := create(t, configMaps, ns, "own")
			wrong := create(t, secrets, ns, "wrong", ownedBy(owner))
			both := create(t, secrets, ns, "both", ownedBy(owner, own))
			right := create(t, secrets, there, "right", ownedBy(owner))
			reported(t, both, "OwnerRefInvalidNamespace", fmt.Sprintf(
				"ownerRef [v1/ConfigMap, namespace: %s, name: owner, uid: %s] does not exist in namespace %q", ns, owner.GetUID(), ns))
			gone(t, soon, wrong)
			owners(t, soon, both, own)
			alive(t, owner, own, both, right)
		},
		"a type is collected as soon as it is defined": testATypeIsCollectedAsSoonAsItIsDefined,
		"a namespace is deleted with owners in it":     testANamespaceIsDeletedWithOwnersInIt,
		"deployment deleted in the background":         testDeployment(metav1.DeletePropagationBackground),
		"deployment deleted in the foreground":         testDeployment(metav1.DeletePropagationForeground),
		"deployment orphaned":                          testDeployment(metav1.DeletePropagationOrphan),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cluster.Namespace(t))
		})
	}
}
