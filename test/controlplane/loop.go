package controlplane

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// LoopOptions say how the controllers of a [Loop] reach the API server.
type LoopOptions struct {
	Config *rest.Config     // for their requests
	Watch  *rest.Config     // for their caches; nil: Config
	Events *rest.Config     // for their events; nil: Config
	Caches caches.Config    // an empty Name is that of the test
	Clock  clock.WithTicker // nil: the real clock
}

// Loop runs controllers with separate caches in this process, without a lease. [StartProcess] runs the whole program.
type Loop struct {
	Controllers []controller.Controller

	metrics *prometheus.Registry
	stop    func()
}

// StartLoop fills caches and runs controllers until the test ends or [Loop.Stop] is called.
func StartLoop(t testing.TB, o LoopOptions, registrations ...controller.Registration) *Loop {
	t.Helper()
	at := func(cfg *rest.Config) kubernetes.Interface {
		if cfg == nil {
			cfg = o.Config
		}
		return ClientFor(t, cfg)
	}
	if o.Caches.Name == "" {
		o.Caches.Name = t.Name()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, r := range registrations {
		o.Caches.Fields |= r.CachedFields
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: at(o.Events).CoreV1().Events("")})
	l, store := &Loop{metrics: prometheus.NewRegistry()}, caches.New(at(o.Watch), o.Caches)
	base := controller.Base{
		Client: at(nil), REST: o.Config, Caches: store, Clock: o.Clock, Metrics: l.metrics, Drain: 5 * time.Second,
		Enabled: func(featuregate.Feature) bool { return true },
		Recorder: func(component string) record.EventRecorder {
			return events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
		},
	}
	for _, r := range registrations {
		c, err := r.New(base)
		Must(t, err)
		l.Controllers = append(l.Controllers, c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	term, endTerm := context.WithCancel(ctx)
	store.Start(ctx)
	var running sync.WaitGroup
	l.stop = sync.OnceFunc(func() {
		endTerm()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			running.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(logTimeout):
			t.Errorf("controllers have not returned within %v of the end of their term", logTimeout)
		}
		cancel()
		store.Shutdown()
		events.Shutdown()
	})
	t.Cleanup(l.stop)
	Must(t, store.WaitForSync(ctx))
	for _, c := range l.Controllers {
		running.Go(func() {
			if err := c.Run(term); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	return l
}

// Stop ends the term, waits for the controllers, and stops the caches.
func (l *Loop) Stop() { l.stop() }

// Metric returns the sum of a counter or gauge over all series, or over the series with a label value.
func (l *Loop) Metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := l.metrics.Gather()
	Must(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			values := map[string]bool{}
			for _, pair := range m.GetLabel() {
				values[pair.GetValue()] = true
			}
			if len(label) == 0 || values[label[0]] {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
