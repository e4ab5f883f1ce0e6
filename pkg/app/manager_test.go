package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/freshness"
)

// client-go's informers sleep without looking at their context when a streaming list is rejected with 429,
// mostly for many seconds.
func TestStoppingWaitsASecondForInformersThatSleep(t *testing.T) {
	overloaded := fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Request: req}, nil
	})
	for range 10 { // the duration of the sleep is random
		synctest.Test(t, func(t *testing.T) {
			clk := clock.RealClock{}
			store := fakeapi.Must(newCaches(Config{REST: &rest.Config{Host: "https://server", Transport: overloaded}},
				freshness.NewTransport(clk)))
			fakeapi.Must(store.Pods())
			m := &Manager{clock: clk, caches: store}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- m.keepCaches(ctx, func() {}) }()
			time.Sleep(time.Minute)
			begun := time.Now()
			stop()
			<-done
			if took := time.Since(begun); took > time.Second {
				t.Errorf("stopping took %v, want 1s at most", took)
			}
			time.Sleep(2 * time.Minute) // the informers wake up and end
		})
	}
}

// brief is a controller that calls end and returns.
type brief struct {
	end func()
	err error
}

func (b brief) Run(context.Context) error { b.end(); return b.err }

func (brief) Healthy() error { return nil }

// The metric of running controllers belongs to the process, which may run other controllers.
func TestRunningControllersMetricNeedsOwnProcess(t *testing.T) {
	controllersmetrics.Register()
	for name, own := range map[string]bool{"of-its-own-process": true, "of-a-part": false} {
		ctx, stop := context.WithCancel(t.Context())
		m := &Manager{cfg: Config{OwnProcess: own}, clock: clock.RealClock{}, controllers: []namedController{{brief{end: stop}, name}}, markStarted: func() {}}
		fakeapi.NoError(t, m.runControllers(ctx, 1))
		families := fakeapi.Must(legacyregistry.DefaultGatherer.Gather())
		shown := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "running_managed_controllers" && strings.Contains(f.String(), name)
		})
		fakeapi.Want(t, name+" is shown", shown, own)
	}
}

// The fence returns errors that wrap context.Canceled.
func TestErrorOfAControllerEndsTheTerm(t *testing.T) {
	broken := fmt.Errorf("broken: %w", context.Canceled)
	m := &Manager{clock: clock.RealClock{}, controllers: []namedController{{brief{end: func() {}, err: broken}, "a"}}, markStarted: func() {}}
	fakeapi.WantError(t, "result of the term", m.runControllers(t.Context(), 1), broken)
}

func TestStandbyWithEmptyCachesDoesNotCompete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(t)
		client.Break(errors.New("no response"), "list pods")
		store := caches.New(client, caches.Config{Name: "test"})
		fakeapi.Must(store.Pods())
		m := &Manager{clock: clock.RealClock{}, caches: store}
		ctx, stop := context.WithCancel(fakeapi.Quiet(t.Context()))
		ended, competes := make(chan error, 1), atomic.Bool{}
		go func() {
			ended <- runStages(ctx, m.keepCaches, func(context.Context, func()) error { competes.Store(true); return nil })
		}()
		for _, filled := range []bool{false, true} {
			time.Sleep(time.Hour)
			fakeapi.Want(t, "competes", competes.Load(), filled)
			client.Break(nil, "list pods")
		}
		stop()
		fakeapi.WantError(t, "result", <-ended, nil)
	})
}

// The elector, not the loop, must cancel a write without a response.
func TestLoopsDrainLongerThanTheElector(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: 0, time.Nanosecond: time.Second + 1, 10 * time.Second: 11 * time.Second} {
		fakeapi.Want(t, fmt.Sprintf("drainTime(%v)", shutdown), drainTime(shutdown), want)
	}
}
