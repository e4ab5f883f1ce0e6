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

	"minikcm/pkg/caches"
)

// LoopOptions say how the controllers of a [Loop] reach the API server.
type LoopOptions struct {
	Config *rest.Config  // for their requests
	Watch  *rest.Config  // for their caches; nil: Config
	Events *rest.Config  // for their events; nil: Config
	Caches caches.Config // an empty Name is that of the test
}

// LoopBase holds the dependencies of the controllers of a [Loop].
type LoopBase struct {
	Client   kubernetes.Interface
	Caches   *caches.Caches
	Recorder func(component string) record.EventRecorder
	Metrics  *prometheus.Registry
}

// RunFunc works for one term, as controller.Controller.Run does.
type RunFunc = func(context.Context) error

// Loop runs controllers with separate caches in this process, without a lease. [StartManager] and [StartProcess] run
// the whole program.
type Loop struct {
	Metrics *prometheus.Registry

	t       testing.TB
	runs    []RunFunc
	term    func()
	release func()
}

// Standby builds controllers with filled caches and no term. build returns the Run functions. The end of the test
// stops the controllers.
func Standby(t testing.TB, o LoopOptions, build func(LoopBase) ([]RunFunc, error)) *Loop {
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
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: at(o.Events).CoreV1().Events("")})
	l := &Loop{t: t, Metrics: prometheus.NewRegistry()}
	store := caches.New(at(o.Watch), o.Caches)
	var err error
	l.runs, err = build(LoopBase{Client: at(nil), Caches: store, Metrics: l.Metrics, Recorder: func(component string) record.EventRecorder {
		return events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	store.Start(ctx)
	l.release = sync.OnceFunc(func() {
		cancel()
		store.Shutdown()
		events.Shutdown()
	})
	t.Cleanup(l.Stop)
	if err := store.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

// BeginTerm lets the controllers work.
func (l *Loop) BeginTerm() *Loop {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range l.runs {
		running.Go(func() {
			if err := run(ctx); err != nil {
				l.t.Errorf("Run: %v", err)
			}
		})
	}
	l.term = func() {
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			running.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(logTimeout):
			l.t.Errorf("controllers have not returned within %v of the end of their term", logTimeout)
		}
	}
	return l
}

// EndTerm ends the term and waits for the controllers. The caches keep running.
func (l *Loop) EndTerm() {
	if l.term != nil {
		l.term()
		l.term = nil
	}
}

func (l *Loop) Stop() {
	l.EndTerm()
	l.release()
}

// Metric returns the sum of a counter or gauge over all series, or over the series with a label value.
func (l *Loop) Metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := l.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
