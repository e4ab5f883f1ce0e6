package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Observed holds the pods and ReplicaSets of a namespace at one moment.
type Observed struct {
	Pods        map[types.UID]*corev1.Pod
	ReplicaSets map[types.UID]*appsv1.ReplicaSet
}

// Observer follows the pods of a namespace, and possibly the ReplicaSets, with separate watches and judges each state.
// The end of the test reports the first violation.
type Observer struct {
	t           testing.TB
	client      kubernetes.Interface
	namespace   string
	replicaSets bool
	judge       func(Observed) (violation string)

	lock      sync.Mutex
	now       Observed
	marks     map[types.UID]bool // markers that the watches have shown
	violation string
}

const markerLabel = "marker"

// ObservePods follows the pods of a namespace. judge is called with each state, never concurrently.
func ObservePods(t testing.TB, client kubernetes.Interface, namespace string, judge func(Observed) (violation string)) *Observer {
	t.Helper()
	return observe(&Observer{t: t, client: client, namespace: namespace, judge: judge})
}

// ObserveReplicaSets follows the pods and ReplicaSets of a namespace; see [ObservePods].
func ObserveReplicaSets(t testing.TB, client kubernetes.Interface, namespace string, judge func(Observed) (violation string)) *Observer {
	t.Helper()
	return observe(&Observer{t: t, client: client, namespace: namespace, judge: judge, replicaSets: true})
}

func observe(o *Observer) *Observer {
	o.t.Helper()
	o.now = Observed{map[types.UID]*corev1.Pod{}, map[types.UID]*appsv1.ReplicaSet{}}
	o.marks = map[types.UID]bool{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	// follow lists and watches until the test ends. If the watch ends before, follow lists and watches again. States in
	// between are not judged.
	follow := func(list func() (since string, err error), open func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
		since, err := list()
		Must(o.t, err)
		running.Go(func() {
			for ctx.Err() == nil {
				w, err := toolswatch.NewRetryWatcherWithContext(ctx, since, &cache.ListWatch{WatchFuncWithContext: open})
				if err != nil {
					o.t.Errorf("namespace %s: %v", o.namespace, err)
					return
				}
				for event := range w.ResultChan() {
					o.record(event.Type, event.Object)
				}
				_ = pollUntil(ctx, func(context.Context) (err error) {
					o.lock.Lock()
					defer o.lock.Unlock()
					if since, err = list(); err == nil {
						o.judgeNow("another list")
					}
					return err
				})
				select {
				case <-ctx.Done():
				case <-time.After(time.Second): // between lists, if each watch ends at once
				}
			}
		})
	}
	o.t.Cleanup(func() {
		cancel()
		running.Wait()
		o.Check()
	})
	o.lock.Lock() // until both lists are complete
	defer o.lock.Unlock()
	follow(func() (string, error) {
		pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		clear(o.now.Pods)
		for i := range pods.Items {
			o.apply(watch.Added, &pods.Items[i])
		}
		return pods.ResourceVersion, nil
	}, o.client.CoreV1().Pods(o.namespace).Watch)
	if o.replicaSets {
		follow(func() (string, error) {
			sets, err := o.client.AppsV1().ReplicaSets(o.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			clear(o.now.ReplicaSets)
			for i := range sets.Items {
				o.apply(watch.Added, &sets.Items[i])
			}
			return sets.ResourceVersion, nil
		}, o.client.AppsV1().ReplicaSets(o.namespace).Watch)
	}
	o.judgeNow("the first list")
	return o
}

func (o *Observer) record(kind watch.EventType, object any) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if about, ok := object.(metav1.Object); ok { // the last event of a watch has a status
		o.apply(kind, about)
		o.judgeNow(fmt.Sprintf("%s of %s at %s", kind, about.GetName(), about.GetResourceVersion()))
	}
}

func (o *Observer) apply(kind watch.EventType, object metav1.Object) {
	if object.GetLabels()[markerLabel] != "" {
		o.marks[object.GetUID()] = true
		return
	}
	switch object := object.(type) {
	case *appsv1.ReplicaSet:
		o.now.ReplicaSets[object.UID] = object
		if kind == watch.Deleted {
			delete(o.now.ReplicaSets, object.UID)
		}
	case *corev1.Pod:
		o.now.Pods[object.UID] = object
		if kind == watch.Deleted {
			delete(o.now.Pods, object.UID)
		}
	}
}

func (o *Observer) judgeNow(cause string) {
	if violation := o.judge(o.now); violation != "" && o.violation == "" {
		o.violation = violation + " after " + cause
	}
}

// Change changes what judge depends on, and judges the present state.
func (o *Observer) Change(change func()) {
	o.lock.Lock()
	defer o.lock.Unlock()
	change()
	o.judgeNow("a change of the test")
}

// Err returns the first violation.
func (o *Observer) Err() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.violation == "" {
		return nil
	}
	return errors.New(o.violation)
}

// Check reports the first violation as an error of the test, once.
func (o *Observer) Check() {
	o.t.Helper()
	if err := o.Err(); err != nil {
		o.t.Errorf("namespace %s: %v", o.namespace, err)
		o.lock.Lock()
		defer o.lock.Unlock()
		o.violation = ""
	}
}

// CatchUp waits until the watches have shown everything so far. It creates an object of each type and waits for that.
func (o *Observer) CatchUp() {
	o.t.Helper()
	ctx := o.t.Context()
	mark := map[string]string{markerLabel: "yes"}
	pod, err := o.client.CoreV1().Pods(o.namespace).Create(ctx, Pod(o.namespace, "", mark, func(p *corev1.Pod) { p.GenerateName = "marker-" }), metav1.CreateOptions{})
	Must(o.t, err)
	markers := []types.UID{pod.UID}
	if o.replicaSets {
		set := ReplicaSet(o.namespace, markerLabel, 0, func(rs *appsv1.ReplicaSet) { rs.Name, rs.GenerateName, rs.Labels = "", "marker-", mark })
		set, err = o.client.AppsV1().ReplicaSets(o.namespace).Create(ctx, set, metav1.CreateOptions{})
		Must(o.t, err)
		markers = append(markers, set.UID)
		defer func() { _ = o.client.AppsV1().ReplicaSets(o.namespace).Delete(ctx, set.Name, metav1.DeleteOptions{}) }()
	}
	Eventually(o.t, 20*time.Second, func(context.Context) error {
		o.lock.Lock()
		defer o.lock.Unlock()
		for _, uid := range markers {
			if !o.marks[uid] {
				return errors.New("observer has not seen the markers")
			}
		}
		return nil
	})
	_ = o.client.CoreV1().Pods(o.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
}
