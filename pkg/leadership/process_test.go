package leadership

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/record"

	"minikcm/internal/fakeapi"
)

// process is an elector with its dependencies in a synctest bubble.
type process struct {
	*Elector
	conn   *conn
	fence  *Fence
	events *record.FakeRecorder
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done is closed

	lock  sync.Mutex
	terms []span
	works bool                            // a term has begun and not ended
	work  func(ctx context.Context) error // run by Lead after the end of ctx; may be nil
	early func() error                    // replaces Lead; may be nil
}

// span is one call of Lead.
type span struct {
	begun, end time.Time
	stoppedAt  time.Time
	writable   bool // at stoppedAt
}

// start runs an elector on the server until the test ends or cancel is called.
func start(t *testing.T, s *leaseServer, identity string, change ...func(*process, *Config)) *process {
	t.Helper()
	p := &process{conn: &conn{LeaseInterface: s}, events: record.NewFakeRecorder(10000), done: make(chan struct{})}
	cfg := Config{Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
		RetryPeriod: 2 * time.Second, Namespace: "kube-system", Name: "test", Identity: identity, ShutdownTimeout: 10 * time.Second}
	for _, c := range change {
		c(p, &cfg)
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	p.fence = NewFence(realClock, metrics)
	elector := fakeapi.Must(New(cfg, Deps{Leases: p.conn, Events: p.events, Fence: p.fence, Metrics: metrics}))
	p.Elector = elector
	events := fakeapi.Must(s.Watch(t.Context(), metav1.ListOptions{}))
	t.Cleanup(events.Stop)
	go func() {
		if lease := s.read(); lease != nil {
			p.watched(lease)
		}
		for event := range events.ResultChan() {
			lease := event.Object.(*coordinationv1.Lease)
			if event.Type == watch.Deleted {
				lease = nil
			}
			p.watched(lease)
		}
	}()
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(t.Context())
	go func() {
		defer close(p.done)
		p.err = p.Run(ctx, p.lead)
	}()
	t.Cleanup(func() {
		p.cancel()
		<-p.done
	})
	synctest.Wait()
	return p
}

// watched passes on what the watch shows, unless the watch is frozen.
func (p *process) watched(lease *coordinationv1.Lease) {
	p.conn.lock.Lock()
	frozen := p.conn.frozen
	p.conn.lock.Unlock()
	if !frozen {
		p.Observe(lease)
	}
}

func (p *process) lead(ctx context.Context, term uint64) error {
	p.lock.Lock()
	n := len(p.terms)
	p.terms = append(p.terms, span{begun: time.Now()})
	p.works = true
	work := p.work
	p.lock.Unlock()
	if p.early != nil {
		return p.early()
	}
	if got := termOf(ctx); got != term {
		return fmt.Errorf("the context of term %d belongs to term %d", term, got)
	}
	<-ctx.Done()
	stopped, writable := time.Now(), p.writable()
	p.lock.Lock()
	p.works = false
	p.lock.Unlock()
	var err error
	if work != nil {
		err = work(ctx)
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.terms[n].stoppedAt, p.terms[n].writable, p.terms[n].end = stopped, writable, time.Now()
	return err
}

// spans returns the calls of Lead.
func (p *process) spans() []span {
	p.lock.Lock()
	defer p.lock.Unlock()
	return append([]span(nil), p.terms...)
}

// writable reports whether the fence admits a write.
func (p *process) writable() bool {
	p.fence.lock.Lock()
	defer p.fence.lock.Unlock()
	return p.fence.term.decideRequest(0, true, time.Now()).rejected == ""
}

// leads reports whether controllers run.
func (p *process) leads() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.works
}

// sleep advances the time of the bubble and waits for all goroutines.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runWithLease runs a test in fake time.
func runWithLease(t *testing.T, test func(*testing.T, *leaseServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newLeaseServer(t)) })
}

// bubble runs a subtest in fake time.
func bubble(t *testing.T, name string, test func(*testing.T, *leaseServer)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { runWithLease(t, test) })
}
