package faults

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// watchStream is the client's end of a watch.
type watchStream struct {
	lines <-chan string
	ended <-chan error // nil: ended cleanly
	close func()
}

// openWatch returns when the header of the response has come.
func openWatch(t *testing.T, p *Proxy, client *http.Client, resource string) watchStream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", p.Config().Host+"/api/v1/"+resource+"?watch=true", nil)
	controlplane.Must(t, err)
	answer, err := client.Do(r)
	controlplane.Must(t, err)
	lines, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer func() { _ = answer.Body.Close() }()
		scanner := bufio.NewScanner(answer.Body)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		ended <- scanner.Err()
	}()
	return watchStream{lines, ended, cancel}
}

// newWatches opens a watch of pods and another of nodes through a new proxy.
func newWatches(t *testing.T) (b *backend, p *Proxy, client *http.Client, pods, nodes watchStream) {
	t.Helper()
	b, p, client = newTestProxy(t)
	return b, p, client, openWatch(t, p, client, "pods"), openWatch(t, p, client, "nodes")
}

func (s watchStream) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := receive(t, "event "+w, s.lines); got != w {
			t.Fatalf("event = %q, want %q", got, w)
		}
	}
}

func (s watchStream) expectSilence(t *testing.T) {
	t.Helper()
	select {
	case got := <-s.lines:
		t.Fatalf("event %q on a silent stream", got)
	case err := <-s.ended:
		t.Fatalf("silent stream ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}

func (s watchStream) expectReset(t *testing.T) {
	t.Helper()
	if err := receive(t, "end of the stream", s.ended); err == nil {
		t.Error("stream ended cleanly, want a reset")
	}
}

func TestFreezeOneResource(t *testing.T) {
	b, p, client, pods, nodes := newWatches(t)
	freeze := p.FreezeWatches(Watches("pods"))
	b.emit("pods", "p1")
	later := openWatch(t, p, client, "pods") // accepted while frozen
	b.emit("pods", "p2")
	b.emit("nodes", "n")
	nodes.expect(t, "n")
	pods.expectSilence(t)
	later.expectSilence(t)
	if got := [2]int{p.OpenWatches(Watches("pods")), p.OpenWatches(Watches())}; got != [2]int{2, 3} {
		t.Errorf("open watches of pods and in all = %v, want 2 and 3", got)
	}
	freeze.Thaw()
	pods.expect(t, "p1", "p2")
	later.expect(t, "p2")
	later.close()
	eventually(t, "closed stream is forgotten, also by the server", func() bool { return p.OpenWatches(Watches("pods")) == 1 && b.watching("pods") == 1 })

	freeze = p.FreezeWatches(Watches())
	b.emit("pods", "last")
	b.emit("pods", endOfStream)
	eventually(t, "end of the server's stream", func() bool { return b.watching("pods") == 0 })
	pods.expectSilence(t)
	freeze.Thaw()
	pods.expect(t, "last")
	if err := receive(t, "end of the stream", pods.ended); err != nil {
		t.Errorf("stream ended with %v, want a clean end", err)
	}
}

func TestCutWatches(t *testing.T) {
	b, p, client, pods, nodes := newWatches(t)
	freeze := p.FreezeWatches(Watches("pods"))
	b.emit("pods", "lost")
	pods.expectSilence(t)
	freeze.Cut()
	pods.expectReset(t)
	pods = openWatch(t, p, client, "pods")
	b.emit("pods", "seen")
	pods.expect(t, "seen")
	freeze.Cut() // has ended
	pods.expectSilence(t)
	if n := p.CutWatches(Watches("pods")); n != 1 {
		t.Errorf("cut %d streams, want 1", n)
	}
	pods.expectReset(t)
	b.emit("nodes", "n")
	nodes.expect(t, "n")
	p.CutConnections()
	nodes.expectReset(t)
	eventually(t, "a new connection", func() bool { return call(t.Context(), p, client, "GET", "").code == 200 })
}

func TestSlowWatches(t *testing.T) {
	b, p, _, pods, _ := newWatches(t)
	slow := p.SlowWatches(Watches("pods"), 300*time.Millisecond)
	started := time.Now()
	b.emit("pods", "p1")
	b.emit("pods", "p2")
	pods.expect(t, "p1", "p2")
	if lag := time.Since(started); lag < 300*time.Millisecond {
		t.Errorf("events came after %v, want at least 300 ms", lag)
	}
	slow.Thaw()
	b.emit("pods", "p3")
	pods.expect(t, "p3")
}

func TestOutages(t *testing.T) {
	for _, tt := range []struct {
		name   string
		outage Outage
		fails  error // of requests during the outage; nil: response after the outage
		writes int   // in the end, of one request during the outage and another after the outage
	}{
		{"refused", Refused, syscall.ECONNREFUSED, 1},
		{"black hole", BlackHole, context.DeadlineExceeded, 1},
		{"partition", Partition, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, p, client, pods, _ := newWatches(t)
			controlplane.Must(t, p.Outage(tt.outage))
			b.emit("pods", "p")
			if tt.outage == Refused {
				pods.expectReset(t)
			} else {
				pods.expectSilence(t)
			}
			ctx := t.Context()
			if tt.outage == BlackHole {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			old, recent := goCall(ctx, p, client, "POST", "x"), goCall(ctx, p, clientFor(t, p), "GET", "")
			if tt.fails != nil {
				for _, done := range []<-chan outcome{old, recent} {
					if got := receive(t, "end of the call", done); !errors.Is(got.err, tt.fails) {
						t.Errorf("error = %v, want %v", got.err, tt.fails)
					}
				}
			}
			if got := b.writes(); len(got) != 0 {
				t.Errorf("writes during the outage: %q", got)
			}
			controlplane.Must(t, p.Restore())
			switch tt.outage {
			case BlackHole:
				pods.expectReset(t)
			case Partition:
				pods.expect(t, "p")
				if got := receive(t, "answer", old); got.code != 201 {
					t.Errorf("after the outage: %+v", got)
				}
			}
			eventually(t, "an answer after the outage", func() bool { return call(t.Context(), p, client, "PUT", "y").code == 201 })
			if got := b.writes(); len(got) != tt.writes {
				t.Errorf("writes = %q, want %d", got, tt.writes)
			}
		})
	}
}

func TestCutIdleWatches(t *testing.T) {
	b, p, client, pods, nodes := newWatches(t)
	const idle = 2 * time.Second
	fault := p.CutIdleWatches(Watches("pods"), idle)
	var last time.Time
	for begun := time.Now(); last.Sub(begun) < idle; last = time.Now() { // events keep the stream open
		b.emit("pods", "p")
		pods.expect(t, "p")
	}
	pods.expectReset(t)
	if took := time.Since(last); took < idle/2 {
		t.Errorf("an idle stream was cut after %v, want %v after its last byte", took, idle)
	}
	nodes.expectSilence(t)
	p.FreezeWatches(Watches("pods"))
	frozen := openWatch(t, p, client, "pods")
	b.emit("pods", "unseen")
	frozen.expectReset(t)
	fault.Thaw()
	third, opened := openWatch(t, p, client, "pods"), time.Now()
	for time.Since(opened) < idle {
		third.expectSilence(t)
	}
}

func TestBadGatewayOnSomeWatches(t *testing.T) {
	_, p, client := newTestProxy(t)
	p.Inject(Rewatches("pods"), BadGateway(http.StatusServiceUnavailable))
	p.Inject(StreamingLists("pods"), BadGateway(http.StatusBadGateway))
	for query, want := range map[string]int{
		"watch=true&resourceVersion=7":                        503,
		"watch=true&resourceVersion=7&sendInitialEvents=true": 502,
		"watch=true&resourceVersion=0":                        200,
		"limit=500":                                           200,
	} {
		answer, err := client.Get(p.Config().Host + "/api/v1/pods?" + query)
		controlplane.Must(t, err)
		if kind := answer.Header.Get("Content-Type"); answer.StatusCode != want || want > 500 && kind != "text/html" {
			t.Errorf("%s: %d, %s; want %d", query, answer.StatusCode, kind, want)
		}
		_ = answer.Body.Close()
	}
}
