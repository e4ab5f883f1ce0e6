package faults

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/fakeapi"
	"minikcm/test/controlplane"
)

const podsPath = "/api/v1/namespaces/ns/pods"

func TestPassesRequestsUntouched(t *testing.T) {
	b, p, client := newTestProxy(t)
	r, err := http.NewRequest("POST", p.Config().Host+podsPath+"?dryRun=All", strings.NewReader("k8s\x00\xff\n"))
	controlplane.Must(t, err)
	r.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
	r.Header.Set("Authorization", "Bearer of something else")
	r.Header.Set("User-Agent", "manager/v1")
	answer, err := client.Do(r)
	controlplane.Must(t, err)
	_, err = io.ReadAll(answer.Body) // a response that is closed early is reset
	controlplane.Must(t, err)
	_ = answer.Body.Close()
	if answer.StatusCode != 201 || answer.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("answer = %s %v", answer.Status, answer.Header)
	}
	fakeapi.WantEqual(t, "writes that reached the server", b.writes(), []string{"POST " + podsPath + "?dryRun=All k8s\x00\xff\n"})
	eventually(t, "answered", func() bool { return p.Requests()[0].Answered })
	want := []Request{{
		Proto: "HTTP/2.0", Method: "POST", Path: podsPath, Query: "dryRun=All", UserAgent: "manager/v1",
		Verb: "create", Resource: "pods", Namespace: "ns", Forwarded: true, Code: 201, Answered: true,
	}}
	fakeapi.WantEqual(t, "requests seen", p.Requests(), want, cmpopts.IgnoreFields(Request{}, "Time"))
	fakeapi.Want(t, "pods created", p.Count("create", "pods", 201), 1)
	b.server.Close()
	if got := call(t.Context(), p, client, "GET", ""); got.err == nil {
		t.Errorf("client got an answer from a dead server: %+v", got)
	}
}

// A client that gets no response does not know whether the write was committed.
func TestWritesWithoutResponse(t *testing.T) {
	received := func(p *Proxy, _ *backend) bool { return len(p.Requests()) == 1 }
	committed := func(_ *Proxy, b *backend) bool { return len(b.writes()) == 1 }
	for _, tt := range []struct {
		name      string
		fault     Fault
		leaves    func(*Proxy, *backend) bool // when the client leaves; nil: never
		committed int                         // in the end
		after     time.Duration               // no commit before
	}{
		{"drop answer", DropAnswer(), nil, 1, 0},
		{"late commit", LateCommit(300 * time.Millisecond), nil, 1, 300 * time.Millisecond},
		{"delayed request, client leaves", DelayRequest(time.Hour), received, 0, 0},
		{"delayed answer, client leaves", DelayAnswer(time.Hour), committed, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, p, client := newTestProxy(t)
			rule := p.Inject(On(Writes, "pods"), tt.fault, Next(1))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			begun := time.Now()
			done := goCall(ctx, p, client, "POST", "x")
			if tt.leaves != nil {
				eventually(t, "event at which the client leaves", func() bool { return tt.leaves(p, b) })
				leave()
			}
			if got := receive(t, "end of the call", done); got.err == nil {
				t.Errorf("client got an answer: %+v", got)
			}
			eventually(t, "commit", func() bool { return len(b.writes()) == tt.committed })
			if took := time.Since(begun); took < tt.after {
				t.Errorf("committed after %v, want %v", took, tt.after)
			}
			if seen := p.Requests()[0]; seen.Forwarded != (tt.committed == 1) || seen.Answered || rule.Hits() != 1 {
				t.Errorf("request seen = %+v, hits %d", seen, rule.Hits())
			}
			if got := call(t.Context(), p, client, "PUT", "again"); got.err != nil {
				t.Errorf("request after the rule: %v", got.err)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	for _, tt := range []struct {
		fault Fault
		is    func(error) bool
		delay int
	}{
		{Refuse(503), apierrors.IsServiceUnavailable, 0},
		{RefuseRetryAfter(429, 1500*time.Millisecond), apierrors.IsTooManyRequests, 2},
		{Refuse(409), apierrors.IsAlreadyExists, 0}, // of a create
	} {
		b, p, _ := newTestProxy(t)
		p.Inject(On("create", "pods"), tt.fault)
		client, err := kubernetes.NewForConfig(p.Config())
		controlplane.Must(t, err)
		err = client.CoreV1().RESTClient().Post().MaxRetries(0).Namespace("ns").Resource("pods").Body([]byte("x")).Do(t.Context()).Error()
		if delay, _ := apierrors.SuggestsClientDelay(err); !tt.is(err) || delay != tt.delay {
			t.Errorf("error = %#v, delay %d s, want %d s", err, delay, tt.delay)
		}
		if got := p.Requests()[0]; got.Forwarded || len(b.writes()) != 0 {
			t.Errorf("refused request was forwarded: %+v", got)
		}
	}
}

func TestHold(t *testing.T) {
	for _, tt := range []struct {
		name      string
		fault     func(*Gate) Fault
		act       func(h *Held, g *Gate, leave func())
		committed [2]int // before and after the act
		answered  bool
	}{
		{"released request", Hold, func(h *Held, _ *Gate, _ func()) { h.Release() }, [2]int{0, 1}, true},
		{"request of an opened gate", Hold, func(_ *Held, g *Gate, _ func()) { g.Open() }, [2]int{0, 1}, true},
		{"cut request", Hold, func(h *Held, _ *Gate, _ func()) { h.Cut() }, [2]int{0, 0}, false},
		{"abandoned request", Hold, func(h *Held, _ *Gate, _ func()) { h.Abandon(); h.Release() }, [2]int{0, 1}, false},
		{"request of a client that left", Hold, func(h *Held, _ *Gate, leave func()) { leave(); h.Release() }, [2]int{0, 1}, false},
		{"released answer", HoldAnswer, func(h *Held, _ *Gate, _ func()) { h.Release() }, [2]int{1, 1}, true},
		{"cut answer", HoldAnswer, func(h *Held, _ *Gate, _ func()) { h.Cut() }, [2]int{1, 1}, false},
		{"abandoned answer", HoldAnswer, func(h *Held, _ *Gate, _ func()) { h.Abandon() }, [2]int{1, 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, p, client := newTestProxy(t)
			gate := NewGate()
			p.Inject(On("create", "pods"), tt.fault(gate))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			done := goCall(ctx, p, client, "POST", "x")
			held := gate.Next(t)
			if got := len(b.writes()); got != tt.committed[0] || held.Request.Path != podsPath {
				t.Errorf("%d commits while %+v is held, want %d", got, held.Request, tt.committed[0])
			}
			select {
			case got := <-done:
				t.Fatalf("client did not wait: %+v", got)
			case <-time.After(20 * time.Millisecond):
			}
			tt.act(held, gate, leave)
			got := receive(t, "end of the call", done)
			if answered := got.err == nil; answered != tt.answered || answered && got.body != "x" {
				t.Errorf("client got %+v, answered should be %v", got, tt.answered)
			}
			eventually(t, "commit", func() bool { return len(b.writes()) == tt.committed[1] })
		})
	}
}
