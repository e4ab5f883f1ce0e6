package replicaset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

type observer struct {
	t      testing.TB
	n      *namespace
	rs     *appsv1.ReplicaSet
	cancel context.CancelFunc
	done   chan struct{}

	lock      sync.Mutex
	least     int
	most      int
	active    map[types.UID]string
	highest   int
	lowest    int
	created   int // pods of the ReplicaSet seen for the first time
	known     map[types.UID]bool
	last      types.UID // of the last pod that had no labels
	violation string
}

// observe starts to follow. From now on there are never more than most active pods, and, once there are least, never
// fewer.
func (n *namespace) observe(rs *appsv1.ReplicaSet, least, most int) *observer {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{t: n.t, n: n, rs: rs, cancel: cancel, done: make(chan struct{}), most: most,
		active: map[types.UID]string{}, known: map[types.UID]bool{}}
	list, err := n.client.CoreV1().Pods(n.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range list.Items {
		o.see(watch.Added, &list.Items[i])
	}
	o.bounds(least, most)
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return n.client.CoreV1().Pods(n.name).Watch(ctx, opts)
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	go func() {
		defer close(o.done)
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				o.see(event.Type, pod)
			}
		}
	}()
	n.t.Cleanup(func() {
		o.check()
		cancel()
		w.Stop()
		<-o.done
	})
	return o
}

func (o *observer) bounds(least, most int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.least, o.most = least, most
	o.lowest, o.highest = len(o.active), len(o.active)
	o.judge("bounds were set")
}

func (o *observer) see(kind watch.EventType, pod *corev1.Pod) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if len(pod.Labels) == 0 && kind == watch.Added {
		o.last = pod.UID
	}
	if kind == watch.Deleted || !metav1.IsControlledBy(pod, o.rs) || !caches.TrimPod(pod).IsActive() {
		delete(o.active, pod.UID)
	} else {
		o.active[pod.UID] = pod.Name
		if !o.known[pod.UID] {
			o.known[pod.UID] = true
			o.created++
		}
	}
	o.judge(fmt.Sprintf("%s of %s at %s", kind, pod.Name, pod.ResourceVersion))
}

func (o *observer) judge(cause string) {
	n := len(o.active)
	o.highest, o.lowest = max(o.highest, n), min(o.lowest, n)
	if o.violation == "" && (n > o.most || n < o.least) {
		o.violation = fmt.Sprintf("%d active pods after %s, allowed are %d to %d: %v", n, cause, o.least, o.most, o.active)
	}
}

// check reports a number out of bounds as an error of the test.
func (o *observer) check() {
	o.t.Helper()
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.violation != "" {
		o.t.Errorf("ReplicaSet %s: %s", o.rs.Name, o.violation)
		o.violation = ""
	}
}

func (o *observer) seen() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.created
}

func (o *observer) settledAt(want int) {
	o.t.Helper()
	o.n.settled(o.rs.Name)
	o.catchUp()
	o.n.eventually(func(context.Context) error {
		o.lock.Lock()
		defer o.lock.Unlock()
		if len(o.active) != want {
			return fmt.Errorf("observer sees %d active pods, want %d", len(o.active), want)
		}
		return nil
	})
	o.bounds(want, want)
}

// catchUp waits until the observer has seen all that has happened so far, by making a pod and waiting for that.
func (o *observer) catchUp() {
	o.t.Helper()
	marker := controlplane.Pod(o.n.name, "", nil)
	marker.GenerateName = "marker-"
	marker = o.n.create(marker)[0]
	o.n.eventually(func(context.Context) error {
		o.lock.Lock()
		defer o.lock.Unlock()
		if o.last != marker.UID {
			return errors.New("observer has not seen the marker")
		}
		return nil
	})
	o.n.delete(marker.Name)
}
