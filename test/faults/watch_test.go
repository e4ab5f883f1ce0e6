package faults

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// watchStream is the client's end of a watch.
type watchStream struct {
	lines <-chan string
	ended <-chan error // nil: ended cleanly
	close func()
}

// openWatch returns when the answer's header has come.
func openWatch(t *testing.T, p *Proxy, client *http.Client, resource string) watchStream {
	t.Helper()
	r, err := http.NewRequest("GET", p.Config().Host+"/api/v1/"+resource+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	answer, err := client.Do(r.WithContext(ctx))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	lines, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer answer.Body.Close()
		scanner := bufio.NewScanner(answer.Body)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		ended <- scanner.Err()
	}()
	t.Cleanup(cancel)
	return watchStream{lines, ended, cancel}
}

// newWatches opens a watch of pods and another of nodes through a new proxy.
func newWatches(t *testing.T) (b *backend, p *Proxy, client *http.Client, pods, nodes watchStream) {
	t.Helper()
	b = newBackend(t)
	p = New(t, b.config())
	client = clientFor(t, p)
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
	b.emit("pods", "p0")
	pods.expect(t, "p0")

	freeze := p.FreezeWatches(Watches("pods"))
	b.emit("pods", "p1")
	b.emit("nodes", "n1")
	nodes.expect(t, "n1")
	later := openWatch(t, p, client, "pods") // accepted while frozen
	b.emit("pods", "p2")
	b.emit("nodes", "n2")
	nodes.expect(t, "n2")
	pods.expectSilence(t)
	later.expectSilence(t)
	if got := [2]int{p.OpenWatches(Watches("pods")), p.OpenWatches(Watches())}; got != [2]int{2, 3} {
		t.Errorf("open watches of pods and in all = %v, want 2 and 3", got)
	}

	freeze.Thaw()
	pods.expect(t, "p1", "p2")
	later.expect(t, "p2")
	b.emit("pods", "p3")
	pods.expect(t, "p3")
	later.close()
	eventually(t, "closed stream is forgotten", func() bool { return p.OpenWatches(Watches("pods")) == 1 })
	eventually(t, "closed stream is closed on the server", func() bool { return b.watching("pods") == 1 })
}

func TestFreezeEndedByCut(t *testing.T) {
	b, p, client, pods, nodes := newWatches(t)
	freeze := p.FreezeWatches(Watches("pods"))
	b.emit("pods", "lost")
	pods.expectSilence(t)
	freeze.Cut()
	pods.expectReset(t)
	again := openWatch(t, p, client, "pods")
	b.emit("pods", "seen")
	again.expect(t, "seen")
	b.emit("nodes", "n")
	nodes.expect(t, "n")
	freeze.Cut()
	again.expectSilence(t)
}

func TestServersEndOfAFrozenStreamIsFrozenToo(t *testing.T) {
	b, p, _, pods, _ := newWatches(t)
	freeze := p.FreezeWatches(Watches())
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
	b, p, _, pods, nodes := newWatches(t)
	if n := p.CutWatches(Watches("pods")); n != 1 {
		t.Errorf("cut %d streams, want 1", n)
	}
	pods.expectReset(t)
	b.emit("nodes", "n")
	nodes.expect(t, "n")
	if n := p.CutWatches(Watches()); n != 1 {
		t.Errorf("cut %d streams, want 1", n)
	}
	nodes.expectReset(t)
}

func TestSlowWatches(t *testing.T) {
	b, p, _, pods, _ := newWatches(t)
	slow := p.SlowWatches(Watches("pods"), 300*time.Millisecond)
	started := time.Now()
	b.emit("pods", "p1")
	b.emit("pods", "p2")
	pods.expectSilence(t)
	pods.expect(t, "p1", "p2")
	if lag := time.Since(started); lag < 300*time.Millisecond {
		t.Errorf("events came after %v, want at least 300 ms", lag)
	}
	p.SlowWatches(Watches("pods"), time.Hour)
	b.emit("pods", "p3")
	slow.Thaw()
	pods.expectSilence(t)
}

func TestOutageRefused(t *testing.T) {
	b, p, client, pods, _ := newWatches(t)
	if err := p.Outage(Refused); err != nil {
		t.Fatal(err)
	}
	pods.expectReset(t)
	if _, _, err := call(t.Context(), p, client, "POST", podsPath, "x"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error = %v, want connection refused", err)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	if code, _, err := call(t.Context(), p, client, "POST", podsPath, "y"); code != 201 {
		t.Errorf("after restore: %d %v", code, err)
	}
	if got := b.writes(); len(got) != 1 {
		t.Errorf("writes = %q, want one", got)
	}
}

func TestOutageBlackHole(t *testing.T) {
	b, p, client, pods, _ := newWatches(t)
	if err := p.Outage(BlackHole); err != nil {
		t.Fatal(err)
	}
	b.emit("pods", "lost")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := call(ctx, p, client, "POST", podsPath, "old connection"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the deadline", err)
	}
	if _, _, err := call(ctx, p, clientFor(t, p), "POST", podsPath, "new connection"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want the deadline", err)
	}
	pods.expectSilence(t)
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	pods.expectReset(t)
	eventually(t, "an answer after restore", func() bool {
		code, _, _ := call(t.Context(), p, client, "POST", podsPath, "y")
		return code == 201
	})
	if got := b.writes(); len(got) != 1 {
		t.Errorf("writes = %q, want one", got)
	}
}

func TestOutagePartitionDeliversLater(t *testing.T) {
	b, p, client, pods, _ := newWatches(t)
	if err := p.Outage(Partition); err != nil {
		t.Fatal(err)
	}
	done := goCall(t.Context(), p, client, "POST", podsPath, "x")
	b.emit("pods", "p1")
	b.emit("pods", "p2")
	pods.expectSilence(t)
	if got := b.writes(); len(got) != 0 {
		t.Errorf("writes through the partition: %q", got)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	pods.expect(t, "p1", "p2")
	if got := receive(t, "answer", done); got.code != 201 {
		t.Errorf("after restore: %+v", got)
	}
}

func TestCutConnections(t *testing.T) {
	_, p, client, pods, _ := newWatches(t)
	p.CutConnections()
	pods.expectReset(t)
	eventually(t, "a new connection", func() bool {
		code, _, _ := call(t.Context(), p, client, "GET", podsPath, "")
		return code == 200
	})
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
	freeze := p.FreezeWatches(Watches("pods"))
	again := openWatch(t, p, client, "pods")
	b.emit("pods", "unseen")
	again.expectReset(t)
	freeze.Thaw()
	fault.Thaw()
	third, opened := openWatch(t, p, client, "pods"), time.Now()
	for time.Since(opened) < idle {
		third.expectSilence(t)
	}
}

func TestBadGatewayOnSomeWatches(t *testing.T) {
	b := newBackend(t)
	p := New(t, b.config())
	p.Inject(Rewatches("pods"), BadGateway(http.StatusServiceUnavailable))
	p.Inject(StreamingLists("pods"), BadGateway(http.StatusBadGateway))
	client := clientFor(t, p)
	for query, want := range map[string]int{
		"watch=true&resourceVersion=7":                        503,
		"watch=true&resourceVersion=7&sendInitialEvents=true": 502,
		"watch=true&sendInitialEvents=true":                   502,
		"watch=true&resourceVersion=0":                        200,
		"limit=500":                                           200,
	} {
		answer, err := client.Get(p.Config().Host + "/api/v1/pods?" + query)
		if err != nil {
			t.Fatal(err)
		}
		if kind := answer.Header.Get("Content-Type"); answer.StatusCode != want || want > 500 && kind != "text/html" {
			t.Errorf("%s: %d, %s; want %d", query, answer.StatusCode, kind, want)
		}
		_ = answer.Body.Close()
	}
}
