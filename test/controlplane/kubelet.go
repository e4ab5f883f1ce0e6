package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubeletWriters is how many status writes of one Kubelet are under way at once.
const kubeletWriters = 4

// Kubelet plays the kubelets of all nodes for the pods of a namespace, as soon as it sees them: pods get ready, and those that are being
// deleted go. Pods need no node for it. Its methods may be called at any time.
type Kubelet struct {
	client kubernetes.Interface
	pods   corev1listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]

	lock  sync.Mutex
	ready func(*corev1.Pod) bool
	gone  func(*corev1.Pod) bool
}

// All says yes to every pod, None to no pod.
func All(*corev1.Pod) bool  { return true }
func None(*corev1.Pod) bool { return false }

// Image says yes to pods whose first container has the image.
func Image(image string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image }
}

// StartKubelet plays until ctx ends. Every pod gets ready, and goes, until Ready and Gone say otherwise.
func StartKubelet(ctx context.Context, client kubernetes.Interface, namespace string) (*Kubelet, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods()
	k := &Kubelet{
		client: client, pods: informer.Lister(), ready: All, gone: All,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, time.Second)),
	}
	seen := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			k.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) },
	}); err != nil {
		return nil, fmt.Errorf("play kubelets: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return nil, fmt.Errorf("play kubelets: %w", context.Cause(ctx))
	}
	for range kubeletWriters {
		go wait.UntilWithContext(ctx, k.work, 0)
	}
	go func() { <-ctx.Done(); k.queue.ShutDown() }()
	return k, nil
}

// Ready says which pods get ready from now on, those included that were there before. A pod that is ready stays so.
func (k *Kubelet) Ready(ready func(*corev1.Pod) bool) { k.set(ready, nil) }

// Gone says which of the pods that are being deleted, and have a node to end on, end from now on.
func (k *Kubelet) Gone(gone func(*corev1.Pod) bool) { k.set(nil, gone) }

func (k *Kubelet) set(ready, gone func(*corev1.Pod) bool) {
	k.lock.Lock()
	if ready != nil {
		k.ready = ready
	}
	if gone != nil {
		k.gone = gone
	}
	k.lock.Unlock()
	pods, _ := k.pods.List(labels.Everything()) // of a cache, which does not fail
	for _, pod := range pods {
		k.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		name, quit := k.queue.Get()
		if quit {
			return
		}
		if err := k.play(ctx, name); err != nil && ctx.Err() == nil {
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// play does for one pod what its kubelet would.
func (k *Kubelet) play(ctx context.Context, name cache.ObjectName) error {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return nil // it is gone
	}
	k.lock.Lock()
	ready, gone := k.ready, k.gone
	k.lock.Unlock()
	pods := k.client.CoreV1().Pods(pod.Namespace)
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		if !gone(pod) {
			return nil
		}
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	case !finished && !IsPodReady(pod) && ready(pod):
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`,
			pod.UID, time.Now().UTC().Format(time.RFC3339))
		_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // another pod has its name, or none
	}
	return err
}

// IsPodReady tells whether a pod's condition Ready is true.
func IsPodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
