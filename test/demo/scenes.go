package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"minikcm/internal/kubelet"
	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
	"minikcm/test/must"
)

const (
	demoNamespace, setName, shop, library = "demo", "web", "shop", "library"

	shopReplicas, shopSurge, shopMissing = 8, 2, 1

	oldImage, newImage = "registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.11"

	unreadyKey = "demo/unready" // annotation of a pod whose readiness probe fails
	pinned     = "example.com/catalogued"
)

var scenes = []struct {
	title string
	play  func(context.Context, *stage)
}{
	{"A ReplicaSet of three (examples/web.yaml)", createSet},
	{"A pod is killed", killPod},
	{"A Service gets its endpoints, and a pod fails its readiness probe", exposePods},
	{"Scaled to ten, and back to three", scaleUpAndDown},
	{"A node dies", killNode},
	{"A Deployment is rolled out, and the rollout is undone halfway", undoRollout},
	{"An owner is deleted in the foreground, and waits for its dependents", deleteInForeground},
	{"The namespace is deleted, and created again", deleteNamespace},
}

func createSet(ctx context.Context, s *stage) {
	var web appsv1.ReplicaSet
	must.Succeed(yaml.UnmarshalStrict(must.Get(os.ReadFile("examples/web.yaml")), &web))
	web.Namespace = demoNamespace
	s.createNamespace(ctx, demoNamespace)
	s.create(ctx, &web)
	s.awaitReplicas(ctx, 3)
	s.printPods(ctx)
}

func killPod(ctx context.Context, s *stage) {
	before := s.activePods(ctx, demoNamespace)
	s.printLine("kubectl delete pod %s", before[0].Name)
	must.Succeed(s.client.Delete(ctx, &before[0]))
	s.await(ctx, "replacement", time.Minute, func(ctx context.Context) (string, bool) {
		for _, p := range s.activePods(ctx, demoNamespace) {
			if !slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
				return describePlace(&p), kubelet.IsReady(&p)
			}
		}
		return "", false
	})
	s.awaitReplicas(ctx, 3)
}

func exposePods(ctx context.Context, s *stage) {
	s.printLine("kubectl expose replicaset web --port=80")
	s.create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: setName},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": setName}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	s.awaitEndpoints(ctx, 3)
	pod := s.activePods(ctx, demoNamespace)[0]
	s.printLine("the readiness probe of %s fails", pod.Name)
	s.patch(ctx, &pod, `{"metadata":{"annotations":{%q:"yes"}}}`, unreadyKey)
	s.awaitEndpoints(ctx, 2)
	s.printLine("the readiness probe of %s passes again", pod.Name)
	s.patch(ctx, &pod, `{"metadata":{"annotations":{%q:null}}}`, unreadyKey)
	s.awaitEndpoints(ctx, 3)
}

func scaleUpAndDown(ctx context.Context, s *stage) {
	s.scale(ctx, 10)
	cheap := slices.MinFunc(s.activePods(ctx, demoNamespace), func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	s.printLine("kubectl annotate pod %s %s=-1     # the oldest, but now the cheapest", cheap.Name, corev1.PodDeletionCost)
	s.patch(ctx, &cheap, `{"metadata":{"annotations":{%q:"-1"}}}`, corev1.PodDeletionCost)
	s.scale(ctx, 3)
	s.printPods(ctx)
}

func (s *stage) scale(ctx context.Context, n int32) {
	s.printLine("kubectl scale replicaset web --replicas=%d", n)
	s.patch(ctx, controlplane.ReplicaSet(demoNamespace, setName, 0), `{"spec":{"replicas":%d}}`, n)
	s.awaitReplicas(ctx, n)
}

func killNode(ctx context.Context, s *stage) {
	dead := s.activePods(ctx, demoNamespace)[0].Spec.NodeName
	s.printLine("kill -9 of the kubelet of %s", dead)
	s.kubelets[dead]()
	s.awaitNode(ctx, dead, corev1.ConditionUnknown)
	s.await(ctx, "pods on "+dead, 2*time.Minute, func(ctx context.Context) (string, bool) {
		var pods corev1.PodList
		must.Succeed(s.client.List(ctx, &pods, client.InNamespace(demoNamespace), client.MatchingFields{"spec.nodeName": dead}))
		ready, leaving := 0, 0
		for _, p := range pods.Items {
			if kubelet.IsReady(&p) {
				ready++
			}
			if p.DeletionTimestamp != nil {
				leaving++
			}
		}
		return fmt.Sprintf("%d in all, %d still marked ready, %d being deleted", len(pods.Items), ready, leaving), leaving == len(pods.Items)
	})
	s.awaitReplicas(ctx, 3)
	s.printLine("the kubelet of %s comes back", dead)
	s.startKubelet(dead)
	s.awaitNode(ctx, dead, corev1.ConditionTrue)
	s.printPods(ctx)
}

func undoRollout(ctx context.Context, s *stage) {
	s.createNamespace(ctx, shop)
	s.printLine("kubectl create deployment shop --replicas=%d     # maxSurge %d, maxUnavailable %d: ReplicaSets of at most %d pods in all, at least %d ready",
		shopReplicas, shopSurge, shopMissing, shopReplicas+shopSurge, shopReplicas-shopMissing)
	s.create(ctx, controlplane.Deployment(shop, shop, shopReplicas, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(shopSurge)), MaxUnavailable: new(intstr.FromInt32(shopMissing)),
		}
	}))
	complete := shopPods{active: shopReplicas, updated: shopReplicas, ready: shopReplicas}
	s.awaitShop(ctx, oldImage, func(pods shopPods) bool { return pods == complete })
	s.printLine("kubectl set image deployment shop main=%s", newImage)
	s.setShopImage(ctx, newImage)
	s.awaitShop(ctx, newImage, func(pods shopPods) bool { return pods.updated >= shopReplicas/2 })
	s.printLine("kubectl rollout undo deployment shop     # halfway")
	s.setShopImage(ctx, oldImage)
	s.awaitShop(ctx, oldImage, func(pods shopPods) bool { return pods == complete })
	s.printLine("kubectl delete namespace %s", shop)
	must.Succeed(s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
}

func (s *stage) setShopImage(ctx context.Context, image string) {
	s.patch(ctx, controlplane.Deployment(shop, shop, 0), `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
}

// shopPods counts the pods that are neither being deleted nor finished.
type shopPods struct{ active, updated, ready int }

// awaitShop counts the pods of one list. The status of a Deployment is the sum of the statuses of its ReplicaSets,
// which lag behind, and may exceed the bound.
func (s *stage) awaitShop(ctx context.Context, image string, wanted func(shopPods) bool) {
	s.await(ctx, "Deployment shop", time.Minute, func(ctx context.Context) (string, bool) {
		var n shopPods
		for _, pod := range s.activePods(ctx, shop) {
			n.active++
			if pod.Spec.Containers[0].Image == image {
				n.updated++
			}
			if kubelet.IsReady(&pod) {
				n.ready++
			}
		}
		return fmt.Sprintf("%d pods, %d of the current template, %d ready", n.active, n.updated, n.ready), wanted(n)
	})
}

func deleteInForeground(ctx context.Context, s *stage) {
	s.createNamespace(ctx, library)
	d := controlplane.Deployment(library, library, 4)
	s.create(ctx, d)
	catalogue := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: library, Name: "catalogue", Finalizers: []string{pinned},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, BlockOwnerDeletion: new(true)}},
	}}
	s.create(ctx, catalogue)
	s.printLine("kubectl apply: a Deployment of four pods, and a ConfigMap that it owns, with the finalizer %s", pinned)
	key := client.ObjectKeyFromObject(d)
	s.await(ctx, "Deployment library", time.Minute, func(ctx context.Context) (string, bool) {
		must.Succeed(s.client.Get(ctx, key, d))
		return fmt.Sprintf("%d available", d.Status.AvailableReplicas), d.Status.AvailableReplicas == 4
	})
	s.printLine("kubectl delete deployment library --cascade=foreground")
	must.Succeed(s.client.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.awaitOwned(ctx, 1)
	s.printLine("the Deployment waits; an event explains the reason after half a minute:")
	s.await(ctx, "event", time.Minute, func(ctx context.Context) (string, bool) {
		var events corev1.EventList
		must.Succeed(s.client.List(ctx, &events, client.InNamespace(library), client.MatchingFields{"reason": "ForegroundDeletionBlocked"}))
		if len(events.Items) == 0 {
			return "none yet", false
		}
		return events.Items[0].Message, true
	})
	s.printLine("the finalizer is removed")
	s.patch(ctx, catalogue, `{"metadata":{"finalizers":null}}`)
	s.awaitOwned(ctx, 0)
	s.await(ctx, "Deployment library", time.Minute, func(ctx context.Context) (string, bool) {
		err := s.client.Get(ctx, key, d)
		must.Succeed(client.IgnoreNotFound(err))
		return "gone", err != nil
	})
}

func (s *stage) awaitOwned(ctx context.Context, n int) {
	s.await(ctx, "dependents", time.Minute, func(ctx context.Context) (string, bool) {
		sets, pods, maps := &appsv1.ReplicaSetList{}, &corev1.PodList{}, &corev1.ConfigMapList{}
		for _, list := range []client.ObjectList{sets, pods, maps} {
			must.Succeed(s.client.List(ctx, list, client.InNamespace(library)))
		}
		return fmt.Sprintf("%d ReplicaSets, %d pods, %d ConfigMaps", len(sets.Items), len(pods.Items), len(maps.Items)),
			len(sets.Items)+len(pods.Items)+len(maps.Items) == n
	})
}

func deleteNamespace(ctx context.Context, s *stage) {
	s.printLine("kubectl delete namespace %s     # pods go at once, other content after --namespace-deletion-grace-period, 5 s", demoNamespace)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: demoNamespace}}
	must.Succeed(s.client.Delete(ctx, ns))
	start := time.Now()
	s.await(ctx, "namespace "+demoNamespace, time.Minute, func(ctx context.Context) (string, bool) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("gone after %.1f s", time.Since(start).Seconds()), true
		}
		must.Succeed(err)
		return string(ns.Status.Phase), false
	})
	createSet(ctx, s)
}

func (s *stage) awaitReplicas(ctx context.Context, n int32) {
	s.await(ctx, "ReplicaSet web", time.Minute, func(ctx context.Context) (string, bool) {
		var rs appsv1.ReplicaSet
		must.Succeed(s.client.Get(ctx, client.ObjectKey{Namespace: demoNamespace, Name: setName}, &rs))
		return fmt.Sprintf("%d ready, %d wanted", rs.Status.ReadyReplicas, *rs.Spec.Replicas),
			rs.Status.ObservedGeneration == rs.Generation && rs.Status.Replicas == n && rs.Status.ReadyReplicas == n
	})
}

func (s *stage) awaitEndpoints(ctx context.Context, n int) {
	s.await(ctx, "endpoints of web", time.Minute, func(ctx context.Context) (string, bool) {
		var list discoveryv1.EndpointSliceList
		must.Succeed(s.client.List(ctx, &list, client.InNamespace(demoNamespace), client.MatchingLabels{discoveryv1.LabelServiceName: setName}))
		count := map[bool]int{}
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				count[*e.Conditions.Ready]++
			}
		}
		return fmt.Sprintf("%d ready, %d not ready", count[true], count[false]), count[true] == n
	})
}

func (s *stage) seeReadyNodes(ctx context.Context) (string, bool) {
	var list corev1.NodeList
	must.Succeed(s.client.List(ctx, &list))
	ready := 0
	for _, node := range list.Items {
		if controlplane.NodeReady(&node) == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			ready++
		}
	}
	return fmt.Sprintf("%d of %d ready", ready, len(nodes)), ready == len(nodes)
}

// awaitNode waits for a status of a node, and for both taints of an unreachable node or for none.
func (s *stage) awaitNode(ctx context.Context, name string, want corev1.ConditionStatus) {
	s.await(ctx, name, 2*time.Minute, func(ctx context.Context) (string, bool) {
		var node corev1.Node
		must.Succeed(s.client.Get(ctx, client.ObjectKey{Name: name}, &node))
		var taints []string
		for _, t := range node.Spec.Taints {
			taints = append(taints, t.ToString())
		}
		status := controlplane.NodeReady(&node)
		seen := fmt.Sprintf("Ready=%s, taints: %s", status, cmp.Or(strings.Join(taints, " "), "none"))
		return seen, status == want && (len(taints) == 0) == (want == corev1.ConditionTrue) && len(taints) != 1
	})
}

// activePods returns the pods that are neither being deleted nor finished, by name.
func (s *stage) activePods(ctx context.Context, namespace string) []corev1.Pod {
	var list corev1.PodList
	must.Succeed(s.client.List(ctx, &list, client.InNamespace(namespace)))
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !caches.TrimPod(&p).IsActive() })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

func (s *stage) printPods(ctx context.Context) {
	for _, p := range s.activePods(ctx, demoNamespace) {
		s.printLine("  %s", describePlace(&p))
	}
}

func describePlace(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return p.Name + ", not scheduled yet"
	}
	return p.Name + " on " + p.Spec.NodeName
}
