package kcmtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

// What somebody's tests wait for, in milliseconds:
//
//	go test -run '^$' -bench . -benchtime 100x ./test/integration/kcmtest

func BenchmarkStart(b *testing.B) {
	var took times
	for b.Loop() {
		begun := time.Now()
		m := kcmtest.Start(b, cluster.Config(), kcmtest.PodsReady())
		took.since(begun)
		m.Stop()
	}
	took.report(b)
}

func BenchmarkNamespaceGoes(b *testing.B) {
	for name, fill := range map[string]func(b *testing.B, namespace string){
		"empty":             func(*testing.B, string) {},
		"with a Deployment": func(b *testing.B, namespace string) { deploymentReady(b, namespace, 3) },
	} {
		b.Run(name, func(b *testing.B) {
			kcmtest.Start(b, cluster.Config(), kcmtest.PodsReady())
			client := cluster.Client(b)
			var took times
			for b.Loop() {
				namespace := newNamespace(b, client)
				fill(b, namespace)
				gone := watching(b, client.CoreV1().Namespaces().Watch, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, namespace).String()})
				begun := time.Now()
				if err := client.CoreV1().Namespaces().Delete(b.Context(), namespace, metav1.DeleteOptions{}); err != nil {
					b.Fatal(err)
				}
				gone(1, isDeleted)
				took.since(begun)
			}
			took.report(b)
		})
	}
}

func BenchmarkDeploymentOfThreeGetsReady(b *testing.B) {
	kcmtest.Start(b, cluster.Config(), kcmtest.PodsReady())
	client := cluster.Client(b)
	var took times
	for b.Loop() {
		namespace := newNamespace(b, client)
		took = append(took, deploymentReady(b, namespace, 3))
		deleteNamespace(b, client, namespace)
	}
	took.report(b)
}

// BenchmarkCascadeOf100 deletes an owner of 100 objects.
func BenchmarkCascadeOf100(b *testing.B) {
	const dependents = 100
	kcmtest.Start(b, cluster.Config())
	client := cluster.Client(b)
	var took times
	for b.Loop() {
		namespace := newNamespace(b, client)
		configMaps := client.CoreV1().ConfigMaps(namespace)
		owner, err := configMaps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		var creates sync.WaitGroup
		for creator := range 10 {
			creates.Go(func() {
				for n := creator; n < dependents; n += 10 {
					_, err := configMaps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
						Name: fmt.Sprint("dependent-", n), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
					}}, metav1.CreateOptions{})
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		creates.Wait()
		gone := watching(b, configMaps.Watch, metav1.ListOptions{})
		begun := time.Now()
		if err := configMaps.Delete(b.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
			b.Fatal(err)
		}
		gone(dependents+1, isDeleted)
		took.since(begun)
		deleteNamespace(b, client, namespace)
	}
	took.report(b)
}

// deploymentReady makes a Deployment and says how long it took until all its pods were ready.
func deploymentReady(b *testing.B, namespace string, replicas int32) time.Duration {
	b.Helper()
	deployments := cluster.Client(b).AppsV1().Deployments(namespace)
	ready := watching(b, deployments.Watch, metav1.ListOptions{})
	begun := time.Now()
	if _, err := deployments.Create(b.Context(), controlplane.Deployment(namespace, "web", replicas), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	ready(1, func(e watch.Event) bool {
		d, ok := e.Object.(*appsv1.Deployment)
		return ok && d.Status.ReadyReplicas == replicas
	})
	return time.Since(begun)
}

// isDeleted reports whether an event tells that an object is gone.
func isDeleted(e watch.Event) bool { return e.Type == watch.Deleted }

// watching begins a watch, and returns a function that waits until n events fit.
func watching(b *testing.B, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), of metav1.ListOptions) func(n int, fits func(watch.Event) bool) {
	b.Helper()
	w, err := begin(b.Context(), of)
	if err != nil {
		b.Fatal(err)
	}
	return func(n int, fits func(watch.Event) bool) {
		b.Helper()
		defer w.Stop()
		late := time.After(patience)
		for n > 0 {
			select {
			case e, open := <-w.ResultChan():
				if !open {
					b.Fatalf("the watch ended while %d events were waited for", n)
				}
				if fits(e) {
					n--
				}
			case <-late:
				b.Fatalf("%d events did not come within %v", n, patience)
			}
		}
	}
}

// times are how long something took, again and again.
type times []time.Duration

func (t *times) since(begun time.Time) { *t = append(*t, time.Since(begun)) }

// report has the median and what 99 of 100 did not exceed shown.
func (t times) report(b *testing.B) {
	slices.Sort(t)
	at := func(share float64) float64 {
		return t[int(math.Ceil(share*float64(len(t))))-1].Seconds() * 1000
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(0, "ns/op") // which counts what goes before and after
}
