package deployment

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"minikcm/test/controlplane"
)

type observer struct {
	t testing.TB
	n *namespace
	d *appsv1.Deployment

	lock      sync.Mutex
	least     int // available pods
	most      int // sum of the sizes
	sizes     map[types.UID]int
	names     map[types.UID]string
	templates map[types.UID]*corev1.PodTemplateSpec
	known     map[types.UID]bool      // every ReplicaSet there ever was
	ready     map[types.UID]time.Time // since when
	running   map[types.UID]types.UID
	exclusive bool
	lowest    int
	highest   int
	marks     map[string]bool // names of markers seen, by each of the two watches
	alike     int
	violation string
}

// observe starts to follow. From now on sizes add up to most at the most, and least pods are available at the least.
func (n *namespace) observe(d *appsv1.Deployment, least, most int) *observer {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{
		t: n.t, n: n, d: d, sizes: map[types.UID]int{}, names: map[types.UID]string{}, templates: map[types.UID]*corev1.PodTemplateSpec{},
		known: map[types.UID]bool{}, ready: map[types.UID]time.Time{}, running: map[types.UID]types.UID{}, marks: map[string]bool{}, most: 1 << 30, alike: 1,
	}
	sets, err := n.client.AppsV1().ReplicaSets(n.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range sets.Items {
		o.see(watch.Added, &sets.Items[i])
	}
	pods, err := n.client.CoreV1().Pods(n.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range pods.Items {
		o.see(watch.Added, &pods.Items[i])
	}
	o.bounds(least, most)
	var running sync.WaitGroup
	follow := func(since string, from func(context.Context, metav1.ListOptions) (watch.Interface, error)) func() {
		w, err := toolswatch.NewRetryWatcherWithContext(ctx, since, &cache.ListWatch{WatchFuncWithContext: from})
		if err != nil {
			n.t.Fatal(err)
		}
		running.Go(func() {
			for event := range w.ResultChan() {
				o.see(event.Type, event.Object)
			}
		})
		return w.Stop
	}
	stops := []func(){
		follow(sets.ResourceVersion, n.client.AppsV1().ReplicaSets(n.name).Watch),
		follow(pods.ResourceVersion, n.client.CoreV1().Pods(n.name).Watch),
	}
	n.t.Cleanup(func() {
		o.check()
		cancel()
		for _, stop := range stops {
			stop()
		}
		running.Wait()
	})
	return o
}

func (o *observer) bounds(least, most int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.least, o.most = least, most
	o.lowest, o.highest = o.available(), o.sum()
	o.judge("bounds were set")
}

func (o *observer) see(kind watch.EventType, object any) {
	o.lock.Lock()
	defer o.lock.Unlock()
	switch object := object.(type) {
	case *appsv1.ReplicaSet:
		if object.Labels["marker"] != "" {
			o.marks["set "+object.Name] = true
			return
		}
		delete(o.sizes, object.UID)
		if kind != watch.Deleted && metav1.IsControlledBy(object, o.d) {
			o.sizes[object.UID], o.names[object.UID] = int(*object.Spec.Replicas), object.Name
			template := object.Spec.Template.DeepCopy()
			delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
			o.templates[object.UID] = template
			if !o.known[object.UID] {
				o.known[object.UID] = true
				o.create(object)
			}
		}
		o.judge(fmt.Sprintf("%s of ReplicaSet %s at %s", kind, object.Name, object.ResourceVersion))
	case *corev1.Pod:
		if object.Labels["marker"] != "" {
			o.marks["pod "+object.Name] = true
			return
		}
		if object.Labels["app"] != o.d.Spec.Template.Labels["app"] {
			return
		}
		delete(o.ready, object.UID)
		delete(o.running, object.UID)
		if kind != watch.Deleted && object.Status.Phase != corev1.PodSucceeded && object.Status.Phase != corev1.PodFailed {
			if c := metav1.GetControllerOf(object); c != nil {
				o.running[object.UID] = c.UID
			}
			if object.DeletionTimestamp == nil && controlplane.IsPodReady(object) {
				o.ready[object.UID] = object.Status.Conditions[0].LastTransitionTime.Time
			}
		}
		o.judge(fmt.Sprintf("%s of pod %s at %s", kind, object.Name, object.ResourceVersion))
	}
}

func (o *observer) create(s *appsv1.ReplicaSet) {
	equal := 0
	for uid, template := range o.templates {
		if _, exists := o.sizes[uid]; exists && equality.Semantic.DeepEqual(template, o.templates[s.UID]) {
			equal++
		}
	}
	if equal > o.alike && o.violation == "" {
		o.violation = fmt.Sprintf("ReplicaSet %s is number %d of its template", s.Name, equal)
	}
}

func (o *observer) sum() int {
	sum := 0
	for _, size := range o.sizes {
		sum += size
	}
	return sum
}

func (o *observer) available() int {
	count := 0
	for _, since := range o.ready {
		if time.Since(since) >= time.Duration(o.d.Spec.MinReadySeconds)*time.Second {
			count++
		}
	}
	return count
}

func (o *observer) judge(cause string) {
	available := o.available()
	o.highest, o.lowest = max(o.highest, o.sum()), min(o.lowest, available)
	if o.violation != "" {
		return
	}
	if o.sum() > o.most {
		o.violation = fmt.Sprintf("sizes add up to %d after %s, allowed are %d: %v", o.sum(), cause, o.most, o.sizes)
	}
	if available < o.least {
		o.violation = fmt.Sprintf("%d pods are available after %s, promised are %d", available, cause, o.least)
	}
	if o.exclusive {
		owners := map[types.UID]bool{}
		for _, owner := range o.running {
			owners[owner] = true
		}
		if len(owners) > 1 {
			o.violation = fmt.Sprintf("pods of %d ReplicaSets run after %s", len(owners), cause)
		}
	}
}

// check reports a broken bound as an error of the test.
func (o *observer) check() {
	o.t.Helper()
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.violation != "" {
		o.t.Errorf("Deployment %s: %s", o.d.Name, o.violation)
		o.violation = ""
	}
}

func (o *observer) seen() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return len(o.known)
}

// extremes are the fewest available pods and the highest sum of sizes since the bounds were set.
func (o *observer) extremes() (lowest, highest int) {
	o.catchUp()
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.lowest, o.highest
}

func (o *observer) complete() (*appsv1.Deployment, *appsv1.ReplicaSet) {
	o.t.Helper()
	d, s := o.n.completeNamed(o.d.Name)
	o.catchUp()
	o.check()
	o.bounds(int(*d.Spec.Replicas), int(*d.Spec.Replicas))
	return d, s
}

func (o *observer) catchUp() {
	o.t.Helper()
	ctx := o.t.Context()
	mark := map[string]string{"marker": "yes"}
	pod := controlplane.Pod(o.n.name, "", mark)
	pod.GenerateName = "marker-"
	pod, err := o.n.client.CoreV1().Pods(o.n.name).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	set := controlplane.ReplicaSet(o.n.name, "", 0, func(s *appsv1.ReplicaSet) {
		s.GenerateName, s.Labels = "marker-", mark
		s.Spec.Selector.MatchLabels = map[string]string{"marker": "set"}
		s.Spec.Template.Labels = map[string]string{"marker": "set"}
	})
	set, err = o.n.client.AppsV1().ReplicaSets(o.n.name).Create(ctx, set, metav1.CreateOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	o.n.eventually(func(context.Context) error {
		o.lock.Lock()
		defer o.lock.Unlock()
		if !o.marks["pod "+pod.Name] || !o.marks["set "+set.Name] {
			return fmt.Errorf("observer has not seen the markers")
		}
		return nil
	})
	_ = o.n.client.CoreV1().Pods(o.n.name).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	_ = o.n.client.AppsV1().ReplicaSets(o.n.name).Delete(ctx, set.Name, metav1.DeleteOptions{})
}
