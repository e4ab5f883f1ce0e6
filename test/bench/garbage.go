package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
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
	garbageMaps, garbagePods     = 1_000, 1_000
	manyOwners, manyOwned        = 100, 100
	treeChildren, treeLeaves     = 10, 10 // of each child
	orphans                      = 100
	handOverGarbage              = 10_000
	handOverAfter                = 2_000 // are gone when the leader is told to stop
	newTypes                     = 5
	ringPatience                 = 30 * time.Second
	customGroup                  = "bench.example.com"
	collectorAgent               = "generic-garbage-collector"
	memoryPayload                = 4_000 // bytes of a ConfigMap
	idleAfterFill                = time.Minute
	typesOfMemory, objectsOfEach = 20, 5_000 // 100,000 objects: 20 % pods, 20 % ConfigMaps, 20 % Secrets, 40 % custom ones of 20 types
)

var (
	dependentsGone  = metric{"2,000 dependents gone", "s"}
	dependentsCPU   = metric{"2,000 dependents, manager CPU", "s"}
	dependentsAPI   = metric{"2,000 dependents, API server CPU", "s"}
	perDependent    = metric{"requests per dependent", ""}
	ownersGone      = metric{"100 owners of 100: dependents gone", "s"}
	treeGone        = metric{"foreground tree of 111 gone", "s"}
	treeRequests    = metric{"foreground tree, requests each", ""}
	orphansReleased = metric{"100 orphans released, owner gone", "s"}
	orphanRequests  = metric{"orphans, requests each", ""}
	ringGone        = metric{"foreground ring of 3 gone (30: it does not go)", "s"}
	newTypeMean     = metric{"new type to first foreground deletion done, mean", "s"}
	newTypeWorst    = metric{"new type to first foreground deletion done, worst", "s"}
	brokenStart     = metric{"process start to other types collected", "s"}
	nextRemoval     = metric{"signal to next removal by the other", "s"}
	garbageLeft     = metric{"signal to last removal", "s"}
)

// Audit policies: what both collectors ask, and who deletes ConfigMaps.
const mapDeletes = policyHead + `
- {level: Metadata, verbs: [delete], resources: [{group: "", resources: [configmaps]}]}
- {level: None}
`

// collecting accepts what a collector asked, watches not counted.
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

// vanished does something and returns when so many ConfigMaps and pods were gone.
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

// measureGarbage deletes an owner of 2,000, a tree in the foreground, and an owner that leaves orphans.
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
	readings := []reading{
		{dependentsGone, all.wall}, {dependentsCPU, all.manager}, {dependentsAPI, all.apiServer}, {perDependent, requests / (garbageMaps + garbagePods)},
	}
	root, err := r.tree(ctx)
	if err != nil {
		return nil, err
	}
	size := 1 + treeChildren + treeChildren*treeLeaves
	tree, requests, err := r.counted(ctx, m, "tree", func() (time.Time, error) {
		return r.vanished(ctx, size, 0, func() error { return r.deleteMap(ctx, root.Name, metav1.DeletePropagationForeground) })
	})
	if err != nil {
		return nil, err
	}
	readings = append(readings, reading{treeGone, tree.wall}, reading{treeRequests, requests / float64(size)})
	if owner, err = r.configMap(ctx, "parent", nil); err != nil {
		return nil, err
	}
	if err := errors.Join(r.dependents(ctx, owner, "orphan", orphans), pause(ctx, settled)); err != nil {
		return nil, err
	}
	left, requests, err := r.counted(ctx, m, "orphans", func() (time.Time, error) {
		return r.vanished(ctx, 1, 0, func() error { return r.deleteMap(ctx, owner.Name, metav1.DeletePropagationOrphan) })
	})
	if err != nil {
		return nil, err
	}
	list, err := r.client.CoreV1().ConfigMaps(benchNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	free := 0
	for _, m := range list.Items {
		if strings.HasPrefix(m.Name, "orphan-") && len(m.OwnerReferences) == 0 {
			free++
		}
	}
	if free != orphans {
		return nil, fmt.Errorf("%d of %d orphans are left", free, orphans)
	}
	return append(readings, reading{orphansReleased, left.wall}, reading{orphanRequests, requests / orphans}), nil
}

// counted is effort, with the requests of the collector for it.
func (r *rig) counted(ctx context.Context, m *manager, name string, work func() (time.Time, error)) (effort, float64, error) {
	before, err := r.audit.where(collecting)
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
	after, err := r.audit.where(collecting)
	return e, float64(len(after) - len(before)), err
}

// tree makes one of three levels, each of which holds the one above.
func (r *rig) tree(ctx context.Context) (*corev1.ConfigMap, error) {
	root, err := r.configMap(ctx, "root", nil)
	if err != nil {
		return nil, err
	}
	for i := range treeChildren {
		child, err := r.configMap(ctx, fmt.Sprintf("child-%d", i), nil, ownedBy(root, true))
		if err != nil {
			return nil, err
		}
		if err := r.dependents(ctx, child, child.Name, treeLeaves); err != nil {
			return nil, err
		}
	}
	return root, pause(ctx, settled)
}

// measureDirectGarbage deletes the same 2,000 objects from eight clients, and what DELETECOLLECTION takes.
func measureDirectGarbage(ctx context.Context, r *rig, _ contestant) ([]reading, error) {
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return nil, err
	}
	if err := r.mixedDependents(ctx, ownedBy(owner, true)); err != nil {
		return nil, err
	}
	all, err := r.effort(ctx, nil, "direct", func() (time.Time, error) {
		return r.vanished(ctx, garbageMaps, garbagePods, func() error {
			return inParallel(ctx, writers, garbageMaps+garbagePods, func(ctx context.Context, i int) (err error) {
				name := fmt.Sprintf("garbage-%d", i)
				if i < garbageMaps {
					err = r.client.CoreV1().ConfigMaps(benchNamespace).Delete(ctx, name, metav1.DeleteOptions{})
				} else {
					err = r.client.CoreV1().Pods(benchNamespace).Delete(ctx, name, metav1.DeleteOptions{})
				}
				return err
			})
		})
	})
	return []reading{{dependentsGone, all.wall}, {dependentsAPI, all.apiServer}}, err
}

// measureManyOwners deletes 100 owners of 100 at once.
func measureManyOwners(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range manyOwners {
		owner, err := r.configMap(ctx, fmt.Sprintf("owner-%d", i), nil)
		if err != nil {
			return nil, err
		}
		if err := r.dependents(ctx, owner, owner.Name, manyOwned); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, settled); err != nil {
		return nil, err
	}
	all, err := r.effort(ctx, m, "owners", func() (time.Time, error) {
		return r.vanished(ctx, manyOwners*(manyOwned+1), 0, func() error {
			return inParallel(ctx, writers, manyOwners, func(ctx context.Context, i int) error {
				return r.deleteMap(ctx, fmt.Sprintf("owner-%d", i), metav1.DeletePropagationBackground)
			})
		})
	})
	return []reading{{ownersGone, all.wall}, {dependentsCPU, all.manager}}, err
}

// measureRing deletes three that hold each other, all in the foreground.
func measureRing(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	if _, err := r.launchWorking(ctx, c); err != nil {
		return nil, err
	}
	const members = 3
	maps := r.client.CoreV1().ConfigMaps(benchNamespace)
	var ring [members]*corev1.ConfigMap
	for i := range ring {
		var err error
		if ring[i], err = r.configMap(ctx, fmt.Sprintf("ring-%d", i), nil); err != nil {
			return nil, err
		}
	}
	for i, m := range ring {
		m.OwnerReferences = []metav1.OwnerReference{ownedBy(ring[(i+1)%members], true)}
		if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("close the ring: %w", err)
		}
	}
	if err := pause(ctx, settled); err != nil {
		return nil, err
	}
	begin := time.Now()
	waiting, cancel := context.WithTimeout(ctx, ringPatience)
	defer cancel()
	end, err := r.vanished(waiting, members, 0, func() error {
		return inParallel(ctx, members, members, func(ctx context.Context, i int) error {
			return r.deleteMap(ctx, ring[i].Name, metav1.DeletePropagationForeground)
		})
	})
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return []reading{{ringGone, ringPatience.Seconds()}}, nil
	}
	return []reading{{ringGone, end.Sub(begin).Seconds()}}, err
}

// custom is a type of custom resources.
type custom struct {
	typ  schema.GroupVersionResource
	kind string
}

// define makes one and waits until it is served.
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

// measureNewTypes defines types one after the other, each with an owner that waits for its dependent.
func measureNewTypes(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	if _, err := r.launchWorking(ctx, c); err != nil {
		return nil, err
	}
	var seconds []float64
	for i := range newTypes {
		begin := time.Now()
		t, err := r.define(ctx, fmt.Sprintf("news%d", i))
		if err != nil {
			return nil, err
		}
		objects, err := r.objects(t)
		if err != nil {
			return nil, err
		}
		owner, err := objects.Create(ctx, t.object("owner"), metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create an owner: %w", err)
		}
		ref := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: ptr.To(true)}
		if _, err := objects.Create(ctx, t.object("dependent", ref), metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create a dependent: %w", err)
		}
		if err := objects.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
			return nil, fmt.Errorf("delete the owner: %w", err)
		}
		if err := poll(ctx, statusPeriod, func() (bool, error) {
			_, err := objects.Get(ctx, "owner", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		}); err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(begin).Seconds())
		if err := pause(ctx, time.Duration(i)*700*time.Millisecond); err != nil { // not in step with anybody's period
			return nil, err
		}
	}
	sum := 0.0
	for _, s := range seconds {
		sum += s
	}
	return []reading{{newTypeMean, sum / newTypes}, {newTypeWorst, slices.Max(seconds)}}, nil
}

// brokenType defines a type that nobody can list in the preferred version: what is stored has to be converted, and the webhook is away.
func brokenType(ctx context.Context, r *rig) error {
	t, err := r.define(ctx, "brokens", func(crd *apiextensionsv1.CustomResourceDefinition) {
		old := crd.Spec.Versions[0]
		old.Name = "v1beta1"
		crd.Spec.Versions[0].Storage = false
		crd.Spec.Versions = append(crd.Spec.Versions, old)
	})
	if err != nil {
		return err
	}
	objects, err := r.objects(t)
	if err != nil {
		return err
	}
	if _, err := objects.Create(ctx, t.object("object"), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create an object: %w", err)
	}
	client, err := crds.NewForConfig(r.cluster.Config())
	if err != nil {
		return fmt.Errorf("build a client: %w", err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	return poll(ctx, statusPeriod, func() (bool, error) {
		crd, err := definitions.Get(ctx, "brokens."+customGroup, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read the type: %w", err)
		}
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/convert")}, ConversionReviewVersions: []string{"v1"},
			},
		}
		_, err = definitions.Update(ctx, crd, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// measureBrokenStart starts a manager beside such a type, with something to collect.
func measureBrokenStart(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.dependents(ctx, owner, "dependent", 10), r.deleteMap(ctx, owner.Name, metav1.DeletePropagationForeground)); err != nil {
		return nil, err
	}
	begin := time.Now()
	end, err := r.vanished(ctx, 11, 0, func() error {
		_, err := r.launch(c, managerUser)
		return err
	})
	return []reading{{brokenStart, end.Sub(begin).Seconds()}}, err
}

// measureGarbageHandOver ends the leader of two in the middle of 10,000 removals.
func measureGarbageHandOver(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	leader, err := r.launchPair(ctx, c)
	if err != nil {
		return nil, err
	}
	owner, err := r.configMap(ctx, "owner", nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.dependents(ctx, owner, "garbage", handOverGarbage), pause(ctx, settled)); err != nil {
		return nil, err
	}
	var sent time.Time
	end, err := r.vanished(ctx, handOverGarbage+1, 0, func() error {
		some, err := watchFromNow(ctx, r.client.CoreV1().ConfigMaps(benchNamespace), metav1.ListOptions{})
		if err != nil {
			return err
		}
		defer some.Stop()
		if err := r.deleteMap(ctx, owner.Name, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		if _, err := follow(ctx, some, nth(handOverAfter, watch.Deleted)); err != nil {
			return err
		}
		sent = time.Now()
		return leader.end(syscall.SIGTERM)
	})
	if err != nil {
		return nil, err
	}
	deletes, err := r.audit.where(requestsOf(standbyUser))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(withCode(deletes, 200)) == 0 {
		return nil, errors.New("the other has removed nothing")
	}
	if err != nil {
		return nil, err
	}
	return []reading{{nextRemoval, earliest(withCode(deletes, 200)).Sub(sent).Seconds()}, {garbageLeft, end.Sub(sent).Seconds()}}, nil
}

// manyObjects fills the cluster with pods, ConfigMaps, Secrets and custom resources, seven of ten with an owner. share is of 100,000.
func manyObjects(share float64) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		owner, err := r.configMap(ctx, "owner", nil)
		if err != nil {
			return err
		}
		types := make([]custom, int(share*typesOfMemory))
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
}
