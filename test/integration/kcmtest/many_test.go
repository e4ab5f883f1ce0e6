package kcmtest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

// crews are managers that share the work on one API server, the largest crew first.
var crews = [][][]string{
	{{"deployment"}, {"replicaset"}, {"namespace"}, {"garbagecollector"}},
	{{"deployment", "replicaset"}, {"namespace"}, {"garbagecollector"}},
	{{"deployment"}, {"replicaset", "namespace"}, {"garbagecollector"}},
}

func TestManagersOfOneAPIServer(t *testing.T) {
	manyManagers(t, []*controlplane.Cluster{cluster}, crews[1:2], 2, 6)
}

func TestManagersOfThreeAPIServers(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	clusters := []*controlplane.Cluster{cluster}
	for range 2 {
		c, err := controlplane.Start(controlplane.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop() })
		clusters = append(clusters, c)
	}
	manyManagers(t, clusters, crews, 4, 50)
}

// manyManagers runs waves of tests of a program that starts and stops many managers, several of them at once. No manager leaves anything
// for the next wave.
func manyManagers(t *testing.T, clusters []*controlplane.Cluster, managers [][][]string, waves, tests int) {
	t.Helper()
	var clients []kubernetes.Interface
	for _, c := range clusters {
		clients = append(clients, c.Client(t))
		newNamespace(t, clients[len(clients)-1]) // the client has its connection now
	}
	before, shown := goroutines(), series(t)
	var memory []uint64
	for wave := range waves {
		log := &log{}
		begun := time.Now()
		if !t.Run(fmt.Sprintf("wave %d", wave+1), func(t *testing.T) {
			for i, crew := range managers {
				for j, controllers := range crew {
					options := []kcmtest.Option{kcmtest.Controllers(controllers...), kcmtest.Log(log.logger())}
					if j == 0 {
						options = append(options, kcmtest.PodsReady())
					}
					kcmtest.Start(t, clusters[i].Config(), options...)
				}
			}
			t.Run("tests", func(t *testing.T) {
				for n := range tests {
					t.Run(fmt.Sprint(n+1), func(t *testing.T) {
						t.Parallel()
						deploymentComesAndGoes(t, clients[n%len(clients)])
					})
				}
			})
		}) {
			return
		}
		log.end()
		noneLeft(t, before, clients...)
		if lines, late := log.told(); lines == 0 || len(late) > 0 {
			t.Errorf("%d lines were logged; too late: %q", lines, late)
		}
		memory = append(memory, inUse())
		t.Logf("wave %d: %d tests took %v, %d goroutines, %.1f MiB in use afterwards", wave+1, tests, time.Since(begun).Round(time.Millisecond),
			runtime.NumGoroutine(), float64(memory[wave])/(1<<20))
	}
	for s := range series(t) {
		if _, was := shown[s]; !was && !countsRequests(s) {
			t.Errorf("the process shows %s, which it did not before", s)
		}
	}
	// What is used once and kept, such as schemes, is there after the first. What a cleanup of the runtime lets go needs one more collection.
	controlplane.Eventually(t, patience, func(context.Context) error {
		if first, last := memory[0], inUse(); last > first+4<<20 {
			return fmt.Errorf("%d bytes are in use after the last wave, %d after the first", last, first)
		}
		return nil
	})
}

// deploymentComesAndGoes is a test of somebody: a Deployment gets ready, is deleted with all that it owns, and its namespace goes.
func deploymentComesAndGoes(t *testing.T, client kubernetes.Interface) {
	namespace := newNamespace(t, client)
	deployments := client.AppsV1().Deployments(namespace)
	web := controlplane.Deployment(namespace, "web", 2, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "any" })
	if _, err := deployments.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 2 {
			err = fmt.Errorf("%d replicas are ready, want 2", d.Status.ReadyReplicas)
		}
		return err
	})
	if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	hasPods(t, client, namespace, 0, func(*corev1.Pod) bool { return true })
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(sets.Items) > 0 {
			err = fmt.Errorf("%d ReplicaSets are left", len(sets.Items))
		}
		return err
	})
	deleteNamespace(t, client, namespace)
}

// inUse is how many bytes of the heap are in use when all garbage is gone.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what had a finalizer or was pooled
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// log counts what it is told, and keeps what it is told too late.
type log struct {
	lock  sync.Mutex
	over  bool
	lines int
	late  []string
}

func (l *log) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.lock.Lock()
		defer l.lock.Unlock()
		l.lines++
		if l.over {
			l.late = append(l.late, prefix+" "+args)
		}
	}, funcr.Options{Verbosity: 6})
}

// end says that from now on it is too late.
func (l *log) end() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.over = true
}

func (l *log) told() (lines int, late []string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.lines, l.late
}
