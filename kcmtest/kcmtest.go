package kcmtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"minikcm/internal/kubelet"
	"minikcm/pkg/app"
	"minikcm/pkg/controllers/namespace"
	"minikcm/pkg/leadership"
)

const (
	// serverPatience bounds the wait for an API server that does not respond. The API server of a test should be up.
	serverPatience = 1500 * time.Millisecond
	// startPatience bounds the start of the controllers, for example with an API server that accepts no list.
	startPatience = 30 * time.Second
	// stopPatience bounds the time for which an unfinished request, for example with a slow webhook, delays the end.
	stopPatience = 2 * time.Second
)

// TB is the part of a test that [Start] needs: of *testing.T, *testing.B or ginkgo's GinkgoTB().
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Manager is the result of [Start].
type Manager struct {
	t    TB
	stop func()
	done chan struct{}
	err  error // valid once done is closed
	once sync.Once
}

// Start runs controllers on the API server of cfg until the test ends, and returns when the controllers work. If the
// controllers cannot work, Start ends the test with a single line that names the reason. If the controllers stop
// before the end of the test, the test fails.
func Start(t TB, cfg *rest.Config, options ...Option) *Manager {
	t.Helper()
	ctx, stop := context.WithCancelCause(context.Background())
	m := &Manager{t: t, stop: func() { stop(nil) }, done: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		defer close(m.done)
		m.err = runManager(ctx, cfg, newSettings(options), sync.OnceFunc(func() { close(started) }))
	}()
	t.Cleanup(m.Stop)
	if !m.waitUntilStarted(started, stop) {
		err := m.err
		m.err = nil // Start reports the error
		t.Fatalf("kcmtest: %v", err)
	}
	return m
}

func (m *Manager) waitUntilStarted(started <-chan struct{}, stop context.CancelCauseFunc) bool {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-started:
		return true
	case <-m.done:
		select {
		case <-started:
			return true // Stop reports the error
		default:
		}
	case <-patience.C:
		stop(errLate)
		<-m.done
		m.err = cmp.Or(m.err, errLate)
	}
	return false
}

// errLate: the controllers do not work although startPatience is over.
var errLate = fmt.Errorf("the controllers do not work after %v", startPatience)

// Stop stops the controllers before the test ends, and returns when all goroutines have ended except those named at
// [app.Manager.Run]. A second call, or a call on nil after a failed Start, does nothing.
func (m *Manager) Stop() {
	if m == nil {
		return
	}
	m.t.Helper()
	m.once.Do(func() {
		m.stop()
		<-m.done
		if m.err != nil {
			m.t.Errorf("kcmtest: the controllers stopped by themselves: %v", m.err)
		}
	})
}

// Run runs controllers on the API server of cfg until ctx ends, and returns when all goroutines have ended except
// those named at [app.Manager.Run]. The error is nil or the reason why the controllers cannot continue.
func Run(ctx context.Context, cfg *rest.Config, options ...Option) error {
	return runManager(ctx, cfg, newSettings(options), func() {})
}

// runManager calls started when the controllers work.
func runManager(ctx context.Context, cfg *rest.Config, s *settings, started func()) error {
	api, err := newConnections(cfg)
	if err != nil {
		return err
	}
	defer api.close()
	managerConfig, err := s.managerConfig(api.config)
	if err != nil {
		return err
	}
	m, err := app.New(managerConfig)
	if err != nil {
		return err
	}
	var kubelets *kubelet.Player
	if s.podsReady {
		if kubelets, err = newKubelets(api.config); err != nil {
			return err
		}
	}
	log, silence := endableLogger(s.log)
	defer silence()
	running, stop := context.WithCancel(klog.NewContext(ctx, log))
	var beside sync.WaitGroup
	beside.Go(func() {
		select {
		case <-m.Started(): // so the API server is there
			if kubelets == nil {
				started()
			} else {
				kubelets.Run(running, started)
			}
		case <-running.Done():
		}
	})
	err = m.Run(running)
	stop()
	beside.Wait()
	if ctx.Err() != nil && errors.Is(err, leadership.ErrShutdownTimeout) {
		err = nil // a request was cut
	}
	if err == nil && context.Cause(ctx) == errLate {
		return startTimeoutError(m)
	}
	return err
}

func startTimeoutError(m *app.Manager) error {
	select {
	case <-m.Started():
		return fmt.Errorf("%w: no list of pods has come for PodsReady", errLate)
	default:
	}
	if types := m.Unsynced(); len(types) > 0 {
		return fmt.Errorf("%w: no list of %s has come", errLate, strings.Join(types, ", "))
	}
	return errLate
}

func (s *settings) managerConfig(cfg *rest.Config) (app.Config, error) {
	if s.grace < 0 {
		return app.Config{}, fmt.Errorf("NamespaceGrace(%v): must not be negative", s.grace)
	}
	controllers, err := app.ControllersNamed(s.controllers...)
	if err != nil {
		return app.Config{}, err
	}
	if len(controllers) == 0 && (len(s.controllers) > 0 || !s.podsReady) {
		return app.Config{}, errors.New("Controllers: name at least one, there is nothing to run")
	}
	for _, c := range controllers {
		if n, ok := c.Config.(*namespace.Config); ok {
			n.Grace = s.grace
		}
	}
	out, err := app.DefaultConfig(cfg, controllers)
	if err != nil {
		return app.Config{}, err
	}
	if s.podsReady {
		out.Permissions = kubeletPermissions()
	}
	out.StartTimeout = serverPatience
	out.MinResync = 0 // no watch lasts that long
	out.Election.Enabled, out.Election.ShutdownTimeout = false, stopPatience
	out.CheckFreshness = false // a test freezes watches on purpose
	out.Serving.Port = 0
	return out, nil
}
