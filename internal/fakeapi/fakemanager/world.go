// Package fakemanager runs one controller on a [fakeapi.Clientset] in a bubble of fake time.
package fakemanager

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// World is a cluster of fakes with one controller.
type World struct {
	*fakeapi.Clientset
	T            *testing.T
	Registration controller.Registration
	Recorder     record.EventRecorder
	Metrics      *prometheus.Registry // of the latest manager
}

// Standby starts caches and a controller without a term. stop ends the caches.
func (w *World) Standby() (c controller.Controller, stop func()) {
	w.T.Helper()
	store := caches.New(w.Clientset, caches.Config{Name: "test", Fields: w.Registration.CachedFields, LeaseNamespaces: w.Registration.LeaseNamespaces})
	w.Metrics = prometheus.NewRegistry()
	c, err := w.Registration.New(controller.Base{
		Client: w.Clientset, Caches: store, Clock: clock.RealClock{}, Metrics: w.Metrics,
		Recorder: func(string) record.EventRecorder { return w.Recorder },
		Enabled:  func(featuregate.Feature) bool { return true },
	})
	fakeapi.NoError(w.T, err)
	return c, fakeapi.FillCaches(w.T, store)
}

// Manager starts caches, a controller and a term. stop ends all three.
func (w *World) Manager() (c controller.Controller, stop func()) {
	w.T.Helper()
	c, stopCaches := w.Standby()
	end := fakeapi.Term(w.T, c.Run)
	return c, func() {
		end()
		stopCaches()
	}
}

// RecordKeys returns a loop that records the names of queued objects in place of a sync. taken returns the names since
// the last call, sorted.
func RecordKeys() (loop *controller.Loop[cache.ObjectName], taken func() []string) {
	var lock sync.Mutex
	var names []string
	loop = controller.NewLoop(controller.LoopConfig{Controller: "test", Queue: "test", Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
		func(_ context.Context, key cache.ObjectName) (controller.Result, error) {
			lock.Lock()
			defer lock.Unlock()
			names = append(names, key.Name)
			return controller.Result{}, nil
		})
	return loop, func() []string {
		synctest.Wait()
		lock.Lock()
		defer lock.Unlock()
		defer func() { names = nil }()
		slices.Sort(names)
		return names
	}
}
