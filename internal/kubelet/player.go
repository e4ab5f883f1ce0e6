package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const writers = 4

// Player simulates the kubelets of all nodes for the pods of a namespace, or of all namespaces. Pods need no node. All
// methods are safe for concurrent use.
type Player struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer
	pods     corev1listers.PodLister
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	clock    clock.Clock

	lock   sync.Mutex
	course func(*corev1.Pod) Course
	known  map[types.UID]progress
}

// NewPlayer returns an idle player. An empty namespace means all namespaces. course is called for each pod many times,
// concurrently, and must not change the pod.
func NewPlayer(client kubernetes.Interface, namespace string, course func(*corev1.Pod) Course) (*Player, error) {
	informer := coreinformers.NewPodInformer(client, namespace, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	p := &Player{
		client: client, informer: informer, pods: corev1listers.NewPodLister(informer.GetIndexer()), clock: clock.RealClock{},
		course: course, known: map[types.UID]progress{},
	}
	seen := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			p.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				p.forgetPod(pod.UID)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("play kubelets: %w", err)
	}
	return p, nil
}

const informerPatience = time.Second

// Run simulates until ctx ends, and returns when all goroutines have ended, except for an informer that sleeps. Run
// calls up after the first list of pods, and must be called once.
func (p *Player) Run(ctx context.Context, up func()) {
	p.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, time.Second))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.informer.RunWithContext(ctx)
	}()
	var all sync.WaitGroup
	defer func() {
		all.Wait()
		patience := p.clock.NewTimer(informerPatience)
		defer patience.Stop()
		select {
		case <-watched:
		case <-patience.C():
		}
	}()
	all.Go(func() { <-ctx.Done(); p.queue.ShutDown() })
	if !cache.WaitFor(ctx, "", p.informer.HasSyncedChecker()) {
		return
	}
	up()
	for range writers {
		all.Go(func() { p.runWorker(ctx) })
	}
}

// Follow replaces the course of all pods, including existing pods.
func (p *Player) Follow(course func(*corev1.Pod) Course) {
	p.lock.Lock()
	p.course = course
	p.lock.Unlock()
	pods, _ := p.pods.List(labels.Everything())
	for _, pod := range pods {
		p.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (p *Player) runWorker(ctx context.Context) {
	for {
		name, quit := p.queue.Get()
		if quit {
			return
		}
		if err := p.syncPod(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Pod not played", "pod", name, "err", err)
			p.queue.AddRateLimited(name)
		} else {
			p.queue.Forget(name)
		}
		p.queue.Done(name)
	}
}

func (p *Player) syncPod(ctx context.Context, name cache.ObjectName) error {
	pod, err := p.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return nil
	}
	now := p.clock.Now()
	at := p.advancePod(pod, now)
	do, wait := at.nextAct(pod, now)
	if wait > 0 {
		p.queue.AddAfter(name, wait)
	}
	switch do {
	case post:
		step := at.currentStep(pod)
		err = Post(ctx, p.client, pod, step.State, step.Reason, step.Message)
	case letGo:
		err = LetGo(ctx, p.client, pod)
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil
	case apierrors.IsInvalid(err):
		klog.FromContext(ctx).V(2).Info("Status of pod refused", "pod", name, "err", err)
		return nil
	}
	return err
}

func (p *Player) advancePod(pod *corev1.Pod, now time.Time) progress {
	p.lock.Lock()
	defer p.lock.Unlock()
	course := p.course(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		course.Steps = nil
	}
	at := p.known[pod.UID].advance(course, pod.DeletionTimestamp != nil, now)
	p.known[pod.UID] = at
	return at
}

func (p *Player) forgetPod(uid types.UID) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.known, uid)
}
