package garbagecollector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestSharedCollector runs the cases of kube-controller-manager v1.37's tests and all tests that need only default
// flags. They share the collector and the controllers of workloads and namespaces.
func TestSharedCollector(t *testing.T) {
	proxy, through := proxied(t)
	c := start(t, through)
	startAll(t, "replicaset,deployment,namespace")
	for name, test := range map[string]func(t *testing.T, ns string){
		"dependents of a deleted owner go, those with another owner and those without stay": func(t *testing.T, ns string) {
			gone1, other := create(t, replicaSets, ns, "owner"), create(t, replicaSets, ns, "other")
			owned := create(t, pods, ns, "owned", ownedBy(gone1))
			shared := create(t, pods, ns, "shared", ownedBy(gone1, other))
			free := create(t, pods, ns, "free")
			gone1.delete(t, metav1.DeletePropagationBackground)
			gone(t, soon, gone1, owned)
			owners(t, soon, shared, other)
			alive(t, shared, other, free)
		},
		"a dependent whose owner never existed goes": func(t *testing.T, ns string) {
			made := time.Now()
			pod := create(t, pods, ns, "pod", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "never", UID: "doesn't matter"}))
			gone(t, soon, pod)
			t.Logf("gone after %v", time.Since(made).Round(time.Millisecond))
		},
		"a living owner does not hold one that waits: the reference to it is taken away": func(t *testing.T, ns string) {
			waits, lives := create(t, rcs, ns, "waits"), create(t, rcs, ns, "lives")
			pod := create(t, pods, ns, "pod", blockedBy(waits), ownedBy(lives))
			waits.delete(t, metav1.DeletePropagationForeground)
			gone(t, soon, waits)
			owners(t, soon, pod, lives)
			alive(t, pod, lives)
		},
		"dependents that do not block do not hold their owner": func(t *testing.T, ns string) {
			owner := create(t, rcs, ns, "owner")
			no := owner.reference()
			no.BlockOwnerDeletion = new(false)
			first := create(t, pods, ns, "not-said", ownedBy(owner), finalizedBy("x/y"))
			second := create(t, pods, ns, "said", refers(no), finalizedBy("x/y"))
			owner.delete(t, metav1.DeletePropagationForeground)
			gone(t, soon, owner)
			for _, pod := range []thing{first, second} {
				pod.letGo(t)
			}
			gone(t, soon, first, second)
		},
		"one that blocks does": func(t *testing.T, ns string) {
			owner := create(t, rcs, ns, "owner")
			pod := create(t, pods, ns, "blocks", blockedBy(owner), finalizedBy("x/y"))
			owner.delete(t, metav1.DeletePropagationForeground)
			controlplane.Eventually(t, soon, func(ctx context.Context) error {
				now, err := pod.now(t, ctx)
				if err != nil || now.GetDeletionTimestamp() == nil {
					return fmt.Errorf("%v is not being deleted: %w", pod, err)
				}
				return nil
			})
			settled(t, ns)
			if now, err := owner.now(t, t.Context()); err != nil || now == nil {
				t.Fatalf("the owner went before its dependent: %v", err)
			}
			pod.letGo(t)
			gone(t, soon, owner, pod)
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
			told(t, soon, both, "OwnerRefInvalidNamespace", fmt.Sprintf(
				"ownerRef [v1/ConfigMap, namespace: %s, name: owner, uid: %s] does not exist in namespace %q", ns, owner.GetUID(), ns))
			gone(t, soon, wrong)
			owners(t, soon, both, own)
			alive(t, owner, own, both, right)
		},
		"owners in no namespace": func(t *testing.T, ns string) {
			volume := create(t, volumes, "", "volume-"+ns)
			t.Cleanup(func() {
				_ = objects(t, volumes, "").Delete(cleanupContext(t), volume.GetName(), metav1.DeleteOptions{})
			})
			valid := create(t, configMaps, ns, "valid", ownedBy(volume))
			invalid := create(t, configMaps, ns, "invalid", refers(metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "invalid", UID: "invalid"}))
			unknown := create(t, configMaps, ns, "unknown", refers(metav1.OwnerReference{APIVersion: "unknown/v1", Kind: "Unknown", Name: "invalid", UID: "invalid-too"}))
			gone(t, soon, invalid)
			settled(t, ns)
			alive(t, valid, unknown, volume)
		},
		"a ring of dependents that go together with the one who is deleted": func(t *testing.T, ns string) {
			first := create(t, pods, ns, "pod1")
			second := create(t, pods, ns, "pod2", blockedBy(first))
			third := create(t, pods, ns, "pod3", blockedBy(second))
			ref := third.reference()
			first.patch(t, map[string]any{"ownerReferences": []any{map[string]any{
				"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name, "uid": ref.UID, "blockOwnerDeletion": true,
			}}})
			first.delete(t, metav1.DeletePropagationForeground)
			gone(t, soon, first, second, third)
		},
		"many owners are deleted at once":                     testManyOwnersAreDeletedAtOnce,
		"a type is collected as soon as it is defined":        testATypeIsCollectedAsSoonAsItIsDefined,
		"jobs go with their cron job and pods with their job": testJobsGoWithTheirCronJobAndPodsWithTheirJob,
		"a namespace is deleted with owners in it":            testANamespaceIsDeletedWithOwnersInIt,
		"lost answers":                         func(t *testing.T, ns string) { testLostAnswers(t, ns, proxy) },
		"deployment deleted in the background": testDeployment(metav1.DeletePropagationBackground),
		"deployment deleted in the foreground": testDeployment(metav1.DeletePropagationForeground),
		"deployment orphaned":                  testDeployment(metav1.DeletePropagationOrphan),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cluster.Namespace(t))
		})
	}
	testObjectChanges(t, c, proxy)
}

func testManyOwnersAreDeletedAtOnce(t *testing.T, ns string) {
	policies := []struct {
		name string
		stay bool
		how  func(o thing)
	}{
		{"by default", true, func(o thing) {
			check(t, objects(t, rcs, ns).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
		}},
		{"orphan", true, func(o thing) { o.delete(t, metav1.DeletePropagationOrphan) }},
		{"orphanDependents", true, func(o thing) {
			//lint:ignore SA1019 clients may still send it
			check(t, objects(t, rcs, ns).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{OrphanDependents: new(true)}))
		}},
		{"background", false, func(o thing) { o.delete(t, metav1.DeletePropagationBackground) }},
		{"foreground", false, func(o thing) { o.delete(t, metav1.DeletePropagationForeground) }},
	}
	var all, stay, leave []thing
	for n := range 50 {
		policy := policies[n%len(policies)]
		owner := create(t, rcs, ns, fmt.Sprint("owner-", n))
		all = append(all, owner)
		for m := range 3 {
			pod := create(t, pods, ns, fmt.Sprintf("pod-%d-%d", n, m), blockedBy(owner))
			if policy.stay {
				stay = append(stay, pod)
			} else {
				leave = append(leave, pod)
			}
		}
		policy.how(owner)
	}
	gone(t, 2*soon, append(all, leave...)...)
	settled(t, ns)
	alive(t, stay...)
	for _, pod := range stay {
		owners(t, soon, pod)
	}
}
